#include "divisi/kv/store_message.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace divisi {
namespace {

BlockKey Key(uint8_t first) {
  BlockKey key;
  for (size_t i = 0; i < key.bytes.size(); ++i) key.bytes[i] = static_cast<uint8_t>(first + i);
  return key;
}

std::vector<StoreMessage> All() {
  StoreCounters counters;
  counters.memory_bytes = 1 << 20;
  counters.breaches = 7;
  return {StoreHello{.node = {3}, .address = "10.0.0.1:7", .region = "region"},
          StoreGet{1, Key(1), Bytes(4096), Bytes(8192)},
          StoreGet{1, Key(1), Bytes(4096), Bytes(8192), Bytes(512)},
          StorePut{2, Key(2), Bytes(100), Key(9)},
          StoreCommit{2, 0x1234567890abcdef},
          StoreCancel{9},
          StoreHas{4, {Key(4), Key(5)}},
          StoreRemove{5, {Key(6)}},
          StoreClear{6},
          StoreQuery{},
          StorePing{11},
          StoreWelcome{.node = {8}, .address = "[::1]:9", .region = "r", .largest = Bytes(77)},
          StoreReject{"no"},
          StoreAnswer{1, StoreStatus::kTooLarge, 5},
          StoreHave{4, {true, false}},
          counters};
}

TEST(StoreMessageTest, EachKindReadsAsWritten) {
  const auto all = All();
  ASSERT_EQ(all.size(), std::variant_size_v<StoreMessage> + 1);  // Two gets
  for (const StoreMessage& message : all) {
    const auto read = DecodeStoreFrame(EncodeStoreFrame({&message, 1}));
    ASSERT_TRUE(read.ok()) << message.index();
    EXPECT_EQ(*read, std::vector{message}) << message.index();
  }
  EXPECT_EQ(DecodeStoreFrame(EncodeStoreFrame(all)).value(), all);
}

TEST(StoreMessageTest, NoPartOfAFrameReadsAsOne) {
  for (const StoreMessage& message : All()) {
    const auto bytes = EncodeStoreFrame({&message, 1});
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(DecodeStoreFrame(std::span(bytes).first(size)).ok()) << message.index();
    }
    auto longer = bytes;
    longer.push_back(std::byte{0xff});
    EXPECT_FALSE(DecodeStoreFrame(longer).ok()) << message.index();
  }
}

TEST(StoreMessageTest, AnotherVersionIsNamed) {
  const StoreMessage hello = StoreHello{.node = {3}};
  auto bytes = EncodeStoreFrame({&hello, 1});
  bytes[5] = std::byte{7};  // Behind the kind and the magic
  bytes.resize(9);          // What follows is another version's.
  const auto read = DecodeStoreFrame(bytes);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, Code::kInvalidArgument);
  EXPECT_NE(read.error().message.find("version 7"), std::string::npos) << read.error().message;
}

TEST(StoreMessageTest, TooManyKeysAreNone) {
  const StoreMessage has = StoreHas{1, std::vector<BlockKey>(kMaxStoreKeys + 1)};
  EXPECT_FALSE(DecodeStoreFrame(EncodeStoreFrame({&has, 1})).ok());
}

TEST(StoreMessageTest, MetricsNameEachCounterOnce) {
  StoreCounters counters;
  counters.hits = 12;
  const std::string text = StoreMetrics(counters);
  EXPECT_NE(text.find("# TYPE divisi_store_hits_total counter\ndivisi_store_hits_total 12\n"),
            std::string::npos);
  EXPECT_NE(text.find("# TYPE divisi_store_used_bytes gauge\n"), std::string::npos);
}

}  // namespace
}  // namespace divisi
