#include "divisi/net/socket_address.h"

#include <gtest/gtest.h>

namespace divisi {
namespace {

TEST(SocketAddressTest, RoundTripsNumbers) {
  for (const char* text : {"10.0.0.2:7001", "127.0.0.1:0", "[::1]:65535", "0.0.0.0:1", "[::]:2"}) {
    const auto address = ParseSocketAddress(text);
    ASSERT_TRUE(address.ok()) << address.error().message;
    EXPECT_EQ(address->Text(), text);
  }
}

TEST(SocketAddressTest, KnowsWildcards) {
  EXPECT_TRUE(ParseSocketAddress("0.0.0.0:1")->IsWildcard());
  EXPECT_TRUE(ParseSocketAddress("[::]:1")->IsWildcard());
  EXPECT_FALSE(ParseSocketAddress("127.0.0.1:1")->IsWildcard());
  EXPECT_FALSE(ParseSocketAddress("[::1]:1")->IsWildcard());
}

TEST(SocketAddressTest, KnowsLoopback) {
  EXPECT_TRUE(ParseSocketAddress("127.0.0.1:1")->IsLoopback());
  EXPECT_TRUE(ParseSocketAddress("127.9.0.1:1")->IsLoopback());
  EXPECT_TRUE(ParseSocketAddress("[::1]:1")->IsLoopback());
  EXPECT_FALSE(ParseSocketAddress("0.0.0.0:1")->IsLoopback());
  EXPECT_FALSE(ParseSocketAddress("10.0.0.127:1")->IsLoopback());
  EXPECT_FALSE(ParseSocketAddress("[::2]:1")->IsLoopback());
}

TEST(SocketAddressTest, RefusesOthersWithAnExample) {
  for (const char* text : {"", ":", "host", ":7001", "10.0.0.2:", "10.0.0.2:x", "10.0.0.2:65536",
                           "::1:7001", "10.0.0.2:-1", "[]:1", "a host:1"}) {
    const auto address = ParseSocketAddress(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.error().code, Code::kInvalidArgument);
    EXPECT_NE(address.error().message.find("10.0.0.2:7001"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace divisi
