// Another worker's host memory under the real engine and model: what is read there is used, and
// what is wrong with it costs time alone.
#include <gtest/gtest.h>

#include "divisi/engine/tier_process_fixture.h"

namespace divisi {
namespace {

// What the other worker has: a pool takes its objects in its place.
class TierPeerTest : public TierProcessTest {
 protected:
  TierPeerTest() {
    Process other({.host = kHost, .pool = held_});
    expected_ = other.Run(prompt_);
    other.Settle();
  }
  Request Asking() const {
    Request request{.prompt = prompt_, .max_tokens = 12};
    request.peer = PrefixPeer{.address = "10.0.0.1:7", .pages = 9};
    return request;
  }

  const std::vector<TokenId> prompt_ = SomeTokens(150, 11);
  const std::shared_ptr<ScriptedPool> held_ = std::make_shared<ScriptedPool>();
  Answer expected_;
};

TEST_F(TierPeerTest, ItsPagesAreUsedAndKept) {
  Process process({.host = kHost, .peer = held_});
  const Answer answer = process.Run(Asking());
  EXPECT_EQ(answer.cached, 144);
  ExpectSame(answer, expected_);
  process.Settle();
  const EngineStats stats = process.stats();
  const TierTraffic& read = stats.tiers->io.tiers[static_cast<size_t>(Tier::kPeer)];
  EXPECT_EQ(read.pages_read, 9);
  EXPECT_GT(read.read_rate.value, 0);
  EXPECT_EQ(stats.tiers->peers->hits, 9);
  EXPECT_EQ(held_->puts, 9 + 1);  // The other worker's own: a page of its answer, too.
  // Without the peer they are there the next time.
  process.PushOut();
  EXPECT_EQ(process.Run(prompt_).cached, 144);
}

TEST_F(TierPeerTest, WhatItLacksIsComputed) {
  const auto keys = held_->Keys();
  for (size_t i = 0; i < keys.size(); i += 3) held_->Erase(keys[i]);
  Process process({.host = kHost, .peer = held_});
  const Answer answer = process.Run(Asking());
  EXPECT_LT(answer.cached, 144);
  ExpectSame(answer, expected_);
  EXPECT_EQ(process.stats().tiers->peers->bad, 0);
}

TEST_F(TierPeerTest, DamagedPagesAreComputed) {
  for (const BlockKey& key : held_->Keys()) {
    auto object = *held_->Of(key);
    object[5000] ^= std::byte{1};
    held_->Set(key, object);
  }
  Process process({.host = kHost, .peer = held_});
  for (int i = 0; i < 3; ++i) {
    ExpectSame(process.Run(Asking()), expected_);
    process.PushOut();
  }
  EXPECT_GE(process.stats().tiers->peers->bad, 1);
}

// It hangs, or its memory may still be written to when the load is given up.
TEST_F(TierPeerTest, ASilentOneIsWaitedForNoLongerThanComputingTakes) {
  held_->silent = true;
  held_->hold = true;
  Process process({.hurried = true, .host = kHost, .peer = held_});
  const SteadyClock clock;
  const Seconds begun = clock.Now();
  const Answer answer = process.Run(Asking());
  EXPECT_LT(clock.Now() - begun, Seconds(10));
  EXPECT_EQ(answer.cached, 0);
  ExpectSame(answer, expected_);
  held_->hold = false;
  ExpectSame(process.Run(Asking()), expected_);
}

TEST_F(TierPeerTest, OneThatIsGoneCostsNothingButComputing) {
  held_->error = static_cast<int>(Code::kUnavailable);
  Process process({.peer = held_});
  ExpectSame(process.Run(Asking()), expected_);
  // What is unreachable is not held to be bad.
  held_->error = 0;
  process.PushOut();
  const Answer again = process.Run(Asking());
  EXPECT_EQ(again.cached, 144);
  ExpectSame(again, expected_);
}

}  // namespace
}  // namespace divisi
