// The remote pool where all goes well, and what it refuses.
#include "divisi/kv/store_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "divisi/kv/store_fixture.h"

namespace divisi {
namespace {

using Kind = StoreCall::Kind;

TEST(StorePoolTest, WhatIsPutIsGot) {
  TestPool pool({});
  EXPECT_EQ(pool.Why(pool.Put(1)), "");
  const auto got = pool.Wait(pool.Get(1, 3));
  ASSERT_TRUE(got.has_value());
  EXPECT_FALSE(got->error.has_value());
  EXPECT_EQ(got->length, Bytes(kStoreObject));
  EXPECT_TRUE(got->released);
  EXPECT_TRUE(pool.IsObject(3, 1));
  EXPECT_EQ(pool.CodeOf(pool.Get(2, 0)), Code::kNotFound);
  EXPECT_EQ(pool.node(0).counters().hits, 1);
  EXPECT_EQ(pool.node(0).counters().misses, 1);
}

TEST(StorePoolTest, PartsOfAnObjectAreGot) {
  TestPool pool({});
  EXPECT_EQ(pool.Why(pool.Put(1)), "");
  const auto object = StoreObject(1);
  const auto get = [&](int64_t skip, size_t length) {
    std::ranges::fill(pool.place(2), std::byte{0xee});
    return pool.Begin(
        {.keys = {StoreKey(1)}, .to = pool.place(2).first(length), .skip = Bytes(skip)},
        Seconds(1));
  };
  const size_t all = object.size();
  for (const size_t skip : {size_t{0}, size_t{1}, size_t{4096}, all - 100}) {
    const auto got = pool.Wait(get(static_cast<int64_t>(skip), 100));
    ASSERT_TRUE(got.has_value());
    EXPECT_FALSE(got->error.has_value());
    EXPECT_EQ(got->length, Bytes(static_cast<int64_t>(all)));
    EXPECT_TRUE(std::ranges::equal(pool.place(2).first(100), std::span(object).subspan(skip, 100)));
    EXPECT_EQ(pool.place(2)[100], std::byte{0xee});
  }
  EXPECT_EQ(pool.node(0).counters().hits, 1);  // One begins it.
  EXPECT_EQ(pool.node(0).counters().got_bytes, 400);
  const auto end = static_cast<int64_t>(all);
  for (const int64_t skip : {end - 99, end, end + 1, int64_t{1} << 40}) {
    EXPECT_EQ(pool.CodeOf(get(skip, 100)), Code::kOutOfRange) << skip;
  }
  EXPECT_EQ(pool.node(0).counters().got_bytes, 400);
  EXPECT_EQ(pool.node(0).counters().reading, 0);
}

TEST(StorePoolTest, ALostCopyIsTold) {
  TestPool pool({.nodes = 2, .copies = 2});
  for (const int64_t number : {1, 2, 3, 4}) EXPECT_EQ(pool.Why(pool.Put(number)), "");
  const auto lost = [&](int64_t number) {
    const auto got = pool.Wait(pool.Get(number, 0));
    return got && !got->error && got->copy_lost;
  };
  for (const int64_t number : {1, 2, 3, 4}) EXPECT_FALSE(lost(number));
  pool.Kill(0);
  for (const int64_t number : {1, 2, 3, 4}) EXPECT_FALSE(lost(number));  // Away is not lost.
  pool.Start(0);
  ASSERT_TRUE(pool.Ready());
  int64_t count = 0;
  for (const int64_t number : {1, 2, 3, 4}) count += lost(number);
  EXPECT_GT(count, 0);  // Of those that ask it first
  EXPECT_LT(count, 4);
  for (const int64_t number : {1, 2, 3, 4}) EXPECT_EQ(pool.Why(pool.Put(number)), "");
  for (const int64_t number : {1, 2, 3, 4}) EXPECT_FALSE(lost(number));
}

TEST(StorePoolTest, ManyCallsAreUnderWayAtOnce) {
  TestPool pool({.nodes = 3, .node_memory = 64 * kStoreObject, .places = 60});
  ASSERT_TRUE(pool.Ready());
  const Seconds start = pool.now();
  std::vector<uint64_t> calls;
  for (int64_t i = 0; i < 60; ++i) calls.push_back(pool.Put(i));
  for (const uint64_t call : calls) EXPECT_EQ(pool.Why(call), "");
  calls.clear();
  for (int64_t i = 0; i < 60; ++i) calls.push_back(pool.Get(i, static_cast<size_t>(i)));
  for (const uint64_t call : calls) EXPECT_EQ(pool.Why(call), "");
  for (int64_t i = 0; i < 60; ++i) EXPECT_TRUE(pool.IsObject(static_cast<size_t>(i), i)) << i;
  // Each alone takes a millisecond of delays.
  EXPECT_LT((pool.now() - start).value, 0.01);
  for (size_t node = 0; node < 3; ++node) EXPECT_GT(pool.node(node).counters().objects, 5);
}

TEST(StorePoolTest, HasRemoveAndClear) {
  TestPool pool({.nodes = 2});
  for (const int64_t number : {1, 2, 3, 4}) EXPECT_EQ(pool.Why(pool.Put(number)), "");
  const std::vector keys{StoreKey(4), StoreKey(9), StoreKey(1)};
  EXPECT_EQ(pool.Wait(pool.Ask(Kind::kHas, keys))->have, (std::vector{true, false, true}));
  EXPECT_EQ(pool.Wait(pool.Ask(Kind::kRemove, keys))->count, 2);
  EXPECT_EQ(pool.Wait(pool.Ask(Kind::kHas, keys))->have, (std::vector{false, false, false}));
  EXPECT_EQ(pool.Wait(pool.Ask(Kind::kClear, {}))->count, 2);
  EXPECT_EQ(pool.CodeOf(pool.Get(2, 0)), Code::kNotFound);
  EXPECT_EQ(pool.Wait(pool.Ask(Kind::kHas, {}))->error, std::nullopt);
}

TEST(StorePoolTest, WhatIsThereIsLeft) {
  TestPool pool({});
  EXPECT_EQ(pool.Why(pool.Put(1)), "");
  EXPECT_EQ(pool.Why(pool.Put(1)), "");
  EXPECT_EQ(pool.node(0).counters().puts, 1);
}

TEST(StorePoolTest, AnObjectThatIsNotWhatItSaysIsNeverSeen) {
  TestPool pool({});
  auto other = StoreObject(2);
  EXPECT_EQ(pool.CodeOf(pool.PutBytes(1, other)), Code::kDataLoss);  // Another key's
  auto torn = StoreObject(1);
  torn.back() ^= std::byte{1};
  EXPECT_EQ(pool.CodeOf(pool.PutBytes(1, torn)), Code::kDataLoss);
  const std::vector<std::byte> tiny(10);
  EXPECT_EQ(pool.CodeOf(pool.PutBytes(1, tiny)), Code::kDataLoss);
  EXPECT_EQ(pool.CodeOf(pool.Get(1, 0)), Code::kNotFound);
  EXPECT_EQ(pool.node(0).counters().bad_puts, 3);
  EXPECT_EQ(pool.node(0).counters().used_bytes, 0);
}

TEST(StorePoolTest, AnObjectLargerThanItsPlaceIsNotSent) {
  TestPool pool({});
  EXPECT_EQ(pool.Why(pool.Put(1)), "");
  const auto call = pool.Begin({.keys = {StoreKey(1)}, .to = pool.place(0).first(100)}, Seconds(1));
  EXPECT_EQ(pool.CodeOf(call), Code::kOutOfRange);
  EXPECT_EQ(pool.place(0)[0], std::byte{0});
}

TEST(StorePoolTest, TheOldestGiveWayAndAreMissed) {
  TestPool pool({.node_memory = 4 * kStoreObject});
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(pool.Why(pool.Put(i)), "");
  EXPECT_EQ(pool.CodeOf(pool.Get(0, 0)), Code::kNotFound);
  EXPECT_EQ(pool.Why(pool.Get(5, 0)), "");
  EXPECT_EQ(pool.node(0).counters().evictions, 2);
}

// Puts press on objects that are being sent slowly: each get is the object or a miss.
TEST(StorePoolTest, AGetDuringEvictionIsAMissOrTheObject) {
  TestPool pool({.node_memory = 4 * kStoreObject,
                 .network = {.latency = Seconds(1e-3), .bandwidth = BytesPerSecond(20e6)}});
  int64_t hits = 0, misses = 0, refused = 0;
  for (int64_t round = 0; round < 60; ++round) {
    std::vector<uint64_t> gets, puts;
    for (size_t i = 0; i < 4; ++i) {
      gets.push_back(pool.Get(round + static_cast<int64_t>(i), i));
      puts.push_back(pool.Put(round + 2 + static_cast<int64_t>(i)));
    }
    for (size_t i = 0; i < 4; ++i) {
      const auto got = pool.Wait(gets[i]);
      ASSERT_TRUE(got.has_value());
      if (got->error) {
        EXPECT_EQ(got->error->code, Code::kNotFound);
        ++misses;
      } else {
        EXPECT_TRUE(pool.IsObject(i, round + static_cast<int64_t>(i)));
        ++hits;
      }
      const auto put = pool.Wait(puts[i]);
      const bool refusal = put->error && put->error->code == Code::kResourceExhausted;
      EXPECT_TRUE(refusal || !put->error);
      refused += refusal;
    }
  }
  EXPECT_GT(hits, 20);
  EXPECT_GT(misses, 20);
  EXPECT_GT(pool.node(0).counters().evictions, 20);
  EXPECT_EQ(pool.node(0).counters().refused_puts, refused);
}

TEST(StorePoolTest, ANodeOfAnotherVersionIsToldSo) {
  TestPool pool({});
  StoreNode& node = pool.node(0);
  const StoreMessage hello = StoreHello{.object_version = 9, .node = {5}};
  node.Receive(77, EncodeStoreFrame({&hello, 1}), pool.now());
  auto bytes = EncodeStoreFrame({&hello, 1});
  bytes[5] = std::byte{2};
  node.Receive(78, bytes, pool.now());
  const auto outputs = node.TakeOutputs(pool.now());
  ASSERT_EQ(outputs.size(), 2);
  for (const auto& output : outputs) {
    EXPECT_TRUE(output.close);
    const auto reject = std::get<StoreReject>(DecodeStoreFrame(output.frame).value().back());
    EXPECT_NE(reject.reason.find("one release"), std::string::npos) << reject.reason;
  }
  EXPECT_EQ(node.counters().breaches, 2);
}

TEST(StorePoolTest, StrangersChangeNothing) {
  TestPool pool({});
  EXPECT_EQ(pool.Why(pool.Put(1)), "");
  StoreNode& node = pool.node(0);
  Random random(3);
  for (uint64_t session = 100; session < 600; ++session) {
    std::vector<std::byte> bytes(static_cast<size_t>(random.Between(0, 60)));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Between(0, 255));
    node.Receive(session, bytes, pool.now());
    const std::vector<StoreMessage> clear{StoreClear{1}};
    node.Receive(session, EncodeStoreFrame(clear), pool.now());  // Before any Welcome
    node.Ended(session, pool.now());
  }
  (void)node.TakeOutputs(pool.now());
  EXPECT_EQ(pool.Why(pool.Get(1, 0)), "");
  EXPECT_EQ(node.counters().objects, 1);
  EXPECT_GE(node.counters().breaches, 500);
}

TEST(StorePoolTest, CountersAreToldWithoutAHello) {
  TestPool pool({});
  EXPECT_EQ(pool.Why(pool.Put(1)), "");
  const std::vector<StoreMessage> query{StoreQuery{}};
  pool.node(0).Receive(50, EncodeStoreFrame(query), pool.now());
  const auto outputs = pool.node(0).TakeOutputs(pool.now());
  ASSERT_EQ(outputs.size(), 1);
  const auto told = std::get<StoreCounters>(DecodeStoreFrame(outputs[0].frame).value()[0]);
  EXPECT_EQ(told, pool.node(0).counters());
  EXPECT_EQ(told.objects, 1);
  EXPECT_EQ(told.put_bytes, static_cast<int64_t>(kStoreObject));
}

TEST(StorePoolTest, RateAndLatencyAreMeasured) {
  constexpr int64_t kLayer = 1 << 20;
  const auto object = StoreObject(1, kLayer);
  TestPool pool({.node_memory = 4 * object.size(),
                 .places = object.size() / kStoreObject + 1,
                 .network = {.bandwidth = BytesPerSecond(1e9)}});
  EXPECT_EQ(pool.Why(pool.PutBytes(1, object)), "");
  const std::span<std::byte> all(pool.place(0).data(), object.size());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(pool.Why(pool.Begin({.keys = {StoreKey(1)}, .to = all}, Seconds(1))), "");
  }
  const RemoteHealth health = pool.pool().health()[0];
  EXPECT_NEAR(health.rate.value, 1e9, 0.3e9);
  EXPECT_GT(health.latency.value, 100e-6);
  EXPECT_LT(health.latency.value, 500e-6);
  EXPECT_EQ(health.under_way, Bytes(0));
}

TEST(StoreNodesTest, KeysSpreadEvenlyAndFewMove) {
  std::vector<uint64_t> seeds;
  for (int i = 0; i < 8; ++i) seeds.push_back(StoreNodeSeed(Format("10.0.0.{}:7100", i)));
  constexpr int64_t kKeys = 20000;
  std::vector<int64_t> count(8);
  int64_t moved = 0;
  for (int64_t i = 0; i < kKeys; ++i) {
    const auto nodes = StoreNodesOf(StoreKey(i), seeds, 2);
    ASSERT_EQ(nodes.size(), 2);
    EXPECT_NE(nodes[0], nodes[1]);
    ++count[nodes[0]];
    // Without the last node its keys go to their second choice, and no other moves.
    const auto fewer = StoreNodesOf(StoreKey(i), std::span(seeds).first(7), 1);
    EXPECT_EQ(fewer[0], nodes[0] == 7 ? nodes[1] : nodes[0]);
    moved += fewer[0] != nodes[0];
  }
  for (const int64_t keys : count) EXPECT_NEAR(keys, kKeys / 8, kKeys / 80);
  EXPECT_EQ(moved, count[7]);
}

}  // namespace
}  // namespace divisi
