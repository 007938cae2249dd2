#include "divisi/cli/pool_setup.h"

#include <gtest/gtest.h>

namespace divisi {
namespace {

TEST(PoolSetupTest, NodesAndRedis) {
  const auto nodes = ParsePool({"10.0.0.1:7100", "store-b:7101"}).value();
  EXPECT_EQ(nodes.stores, (std::vector<StoreAddress>{{"10.0.0.1", 7100}, {"store-b", 7101}}));
  EXPECT_FALSE(nodes.redis.has_value());
  const auto plain = ParsePool({"redis://cache"}).value();
  EXPECT_EQ(plain.redis->host, "cache");
  EXPECT_EQ(plain.redis->port, 6379);
  EXPECT_EQ(plain.redis->database, 0);
  const auto full = ParsePool({"redis://kv:se@cret@10.0.0.9:7000/3"}).value();
  EXPECT_EQ(full.redis->host, "10.0.0.9");
  EXPECT_EQ(full.redis->port, 7000);
  EXPECT_EQ(full.redis->database, 3);
  EXPECT_EQ(full.redis->user, "kv");
  EXPECT_EQ(full.redis->password, "se@cret");
  EXPECT_EQ(ParsePool({"redis://:word@h"}).value().redis->password, "word");
}

TEST(PoolSetupTest, WhatIsNoPlaceIsNamed) {
  for (const char* bad : {"store", "store:0", "store:x", "redis://", "redis://h:0", "redis://h/x",
                          "redis://u@h", "redis://h/-1"}) {
    const auto parsed = ParsePool({bad});
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
    EXPECT_NE(parsed.error().message.find("--kv-pool"), std::string::npos) << bad;
  }
  EXPECT_FALSE(ParsePool({"redis://h", "store:7100"}).ok());
}

TEST(PoolSetupTest, NodesElsewhereDoNotReachLoopback) {
  const auto reachable = [](const char* node, const char* listen, const char* advertise,
                            const char* pool_listen = "") {
    ServeOptions options;
    options.kv_pool_listen = pool_listen;
    options.data_listen = listen;
    options.data_advertise = advertise;
    return CheckReachable(ParsePool({node}).value(), options).ok();
  };
  EXPECT_TRUE(reachable("127.0.0.1:7100", "127.0.0.1:0", ""));
  EXPECT_TRUE(reachable("store-a:7100", "127.0.0.1:0", ""));  // Who knows what that is.
  EXPECT_FALSE(reachable("10.0.0.7:7100", "127.0.0.1:0", ""));
  EXPECT_TRUE(reachable("10.0.0.7:7100", "10.0.0.2:0", ""));
  EXPECT_TRUE(reachable("10.0.0.7:7100", "127.0.0.1:0", "10.0.0.2"));
  EXPECT_TRUE(reachable("10.0.0.7:7100", "127.0.0.1:0", "", "10.0.0.2:7300"));
  EXPECT_FALSE(reachable("10.0.0.7:7100", "10.0.0.2:0", "", "127.0.0.1:7300"));
  EXPECT_TRUE(reachable("redis://10.0.0.7", "127.0.0.1:0", ""));
}

}  // namespace
}  // namespace divisi
