// Tiers under the real engine and model: what evictions, restarts and damage leave is used, and
// nothing else.
#include <gmock/gmock.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "divisi/engine/tier_process_fixture.h"

namespace divisi {
namespace {

using TierDriverTest = TierProcessTest;

TEST_F(TierDriverTest, TurnTwoReusesTurnOneFromHostMemory) {
  Process process({.host = kHost});
  for (const int64_t length : {15, 16, 17, 31, 33, 100, 160, 161}) {
    SCOPED_TRACE(length);
    const auto prompt = SomeTokens(length, static_cast<TokenId>(length));
    const Answer first = process.Run(prompt);
    std::vector<TokenId> turn = prompt;
    for (const SampledToken& token : first.tokens) turn.push_back(token.token);
    const auto more = SomeTokens(20, 999);
    turn.insert(turn.end(), more.begin(), more.end());
    process.Settle();
    process.PushOut();
    const Answer second = process.Run(turn);
    // All full pages that turn 1 left behind: its last token's K and V were never computed.
    EXPECT_EQ(second.cached, (length + 11) / 16 * 16);
    ExpectSame(second, WithoutCache(turn));
  }
  const PrefixLoaderStats stats = *process.stats().prefixes;
  EXPECT_GE(stats.loads, 8);
  EXPECT_EQ(stats.loads_failed, 0);
  EXPECT_EQ(stats.pages_read, stats.pages_used);
}

TEST_F(TierDriverTest, WhatTheLastStepCompletedIsSavedWithoutAnother) {
  Process process({.host = kHost});
  process.Run(Request{.prompt = SomeTokens(100, 5), .max_tokens = 1});
  for (int i = 0; i < 2000 && process.stats().prefixes->tiers.host_pages < 6; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(process.stats().prefixes->tiers.host_pages, 6);
}

TEST_F(TierDriverTest, TheDiskOutlivesTheProcess) {
  const auto prompt = SomeTokens(150, 11);
  Answer first;
  {
    Process process({.host = kHost, .disk = directory_});
    first = process.Run(prompt);
    process.Settle();
  }
  ASSERT_GE(Files().size(), 9);
  Process process({.host = kHost, .disk = directory_});
  const Answer again = process.Run(prompt);
  EXPECT_EQ(again.cached, 144);
  ExpectSame(again, first);
}

TEST_F(TierDriverTest, ASaltIsAnotherTenant) {
  Process process({.host = kHost});
  const auto prompt = SomeTokens(100, 3);
  const Answer first = process.Run(prompt, "a");
  process.Settle();
  process.PushOut();
  EXPECT_EQ(process.Run(prompt).cached, 0);
  process.PushOut();
  EXPECT_EQ(process.Run(prompt, "b").cached, 0);
  process.PushOut();
  const Answer again = process.Run(prompt, "a");
  EXPECT_EQ(again.cached, 96);
  ExpectSame(again, first);
}

TEST_F(TierDriverTest, DamagedFilesAreComputedAnew) {
  const auto prompt = SomeTokens(150, 11);
  Answer first;
  {
    Process process({.host = kHost, .disk = directory_});
    first = process.Run(prompt);
    process.Settle();
  }
  const auto files = Files();
  ASSERT_GE(files.size(), 9);
  for (size_t i = 0; i < files.size(); ++i) {
    if (i % 2 == 0) {
      std::filesystem::resize_file(files[i], 4096 + 24576 / 2);
    } else {
      std::fstream file(files[i], std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(4096 + static_cast<int64_t>(i) * 1000);
      file.put('\x5a');
    }
  }
  Process process({.host = kHost, .disk = directory_});
  ExpectSame(process.Run(prompt), first);
  process.PushOut();
  ExpectSame(process.Run(prompt), first);
}

}  // namespace
}  // namespace divisi
