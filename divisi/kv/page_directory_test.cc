#include "divisi/kv/page_directory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "divisi/core/check.h"
#include "divisi/core/random.h"

namespace divisi {
namespace {

constexpr Seconds kNow(100);
constexpr NodeId kA{11}, kB{22};

PageDirectory DirectoryFor(DirectoryOptions options) {
  auto directory = PageDirectory::Create(options);
  CHECK(directory.ok());
  return *std::move(directory);
}

BlockKey RandomKey(Random& random) {
  BlockKey key;
  for (int i = 0; i < 4; ++i) {
    const uint64_t word = random.Next64();
    std::memcpy(key.bytes.data() + 8 * i, &word, sizeof word);
  }
  return key;
}

std::vector<BlockKey> Chain(uint64_t number, int64_t pages) {
  Random random(number);
  std::vector<BlockKey> keys;
  for (int64_t i = 0; i < pages; ++i) keys.push_back(RandomKey(random));
  return keys;
}

std::span<const BlockKey> First(const std::vector<BlockKey>& keys, size_t pages) {
  return std::span(keys).first(pages);
}

HolderMatch MatchOf(PageDirectory& directory, NodeId holder, std::span<const BlockKey> keys,
                    Seconds now = kNow) {
  for (const HolderMatch& match : directory.Find(keys, now)) {
    if (match.holder == holder) return match;
  }
  return {};
}

using Pages = std::array<int32_t, kTiers>;

TEST(PageDirectoryTest, TellsLeadingPagesByTierOrAFasterOne) {
  PageDirectory directory = DirectoryFor({.pages = 1000});
  const auto keys = Chain(1, 100);
  ASSERT_TRUE(directory.Join(kA).ok());
  ASSERT_TRUE(directory.Join(kB).ok());
  directory.Stored(kA, Tier::kDevice, First(keys, 10));
  directory.Stored(kA, Tier::kHost, std::span(keys).subspan(8, 22));
  directory.Stored(kA, Tier::kRemote, keys);
  directory.Stored(kB, Tier::kDisk, First(keys, 50));
  EXPECT_EQ(MatchOf(directory, kA, keys).pages, (Pages{10, 30, 30, 100}));
  EXPECT_EQ(MatchOf(directory, kB, keys).pages, (Pages{0, 0, 50, 50}));
  EXPECT_EQ(directory.FindExactly(kA, keys, kNow).pages, (Pages{10, 30, 30, 100}));
  EXPECT_EQ(directory.Find({}, kNow).size(), 2u);
  EXPECT_EQ(directory.pages_of(kA), 100);
  EXPECT_EQ(directory.stats().pairs, 150);

  directory.Removed(kA, Tier::kRemote, std::span(keys).subspan(60));
  EXPECT_EQ(MatchOf(directory, kA, keys).pages, (Pages{10, 30, 30, 60}));
  directory.Verify();
}

TEST(PageDirectoryTest, AMissingPageInTheMiddleIsFoundExactly) {
  PageDirectory directory = DirectoryFor({.pages = 1000});
  const auto keys = Chain(1, 512);
  ASSERT_TRUE(directory.Join(kA).ok());
  for (const size_t gap : {size_t{0}, size_t{1}, size_t{77}, size_t{510}}) {
    directory.Stored(kA, Tier::kDevice, keys);
    directory.Removed(kA, Tier::kDevice, {{keys[gap]}});
    const int32_t end = static_cast<int32_t>(gap);
    EXPECT_EQ(directory.FindExactly(kA, keys, kNow).pages, (Pages{end, end, end, end}));
    const int32_t found = MatchOf(directory, kA, keys).pages[0];
    EXPECT_TRUE(found == end || found == 512) << found;  // The gap, or not looked at.
    directory.Clear(kA);
  }
}

TEST(PageDirectoryTest, EqualsWalkingForAnyNumberOfHolders) {
  for (const int holders : {3, 64, 65, 128, 200}) {
    PageDirectory directory = DirectoryFor({.pages = 10'000});
    const auto keys = Chain(1, 512);
    Random random(holders);
    std::vector<Pages> expected;
    for (int i = 0; i < holders; ++i) {
      const NodeId holder{1000u + i};
      ASSERT_TRUE(directory.Join(holder).ok());
      Pages& ends = expected.emplace_back();
      int32_t most = 0;
      for (int tier = 0; tier < kTiers; ++tier) {
        const auto length = static_cast<int32_t>(random.Between(0, 512));
        directory.Stored(holder, static_cast<Tier>(tier), First(keys, length));
        ends[tier] = most = std::max(most, length);
      }
    }
    const auto found = directory.Find(keys, kNow);
    ASSERT_EQ(found.size(), expected.size());
    for (int i = 0; i < holders; ++i) {
      EXPECT_EQ(found[i].holder.value, 1000u + i);
      EXPECT_EQ(found[i].pages, expected[i]);
      EXPECT_EQ(found[i].promised, expected[i].back());
    }
    directory.Verify();
  }
}

TEST(PageDirectoryTest, EqualFirst64BitsAreNotMixedUp) {
  PageDirectory directory = DirectoryFor({.pages = 1000});
  const auto mine = Chain(1, 64);
  auto other = Chain(2, 64);
  for (size_t i = 0; i < mine.size(); ++i) {
    std::copy_n(mine[i].bytes.begin(), 8, other[i].bytes.begin());
  }
  ASSERT_TRUE(directory.Join(kA).ok());
  ASSERT_TRUE(directory.Join(kB).ok());
  directory.Stored(kA, Tier::kDevice, mine);
  EXPECT_EQ(MatchOf(directory, kA, other).pages, (Pages{}));
  directory.Stored(kB, Tier::kDevice, other);
  EXPECT_EQ(MatchOf(directory, kB, mine).pages, (Pages{}));
  directory.Removed(kA, Tier::kDevice, other);
  EXPECT_EQ(directory.pages_of(kA), 64);
  EXPECT_EQ(directory.stats().unknown_removals, 64);
}

TEST(PageDirectoryTest, ForeignHashesAreKeys) {
  EXPECT_EQ(KeyOfHash(0x0102030405060708).Hex(),
            "0000000000000000000000000000000000000000000000000102030405060708");
  const std::vector<uint8_t> digest = {0xab, 0xcd};
  EXPECT_EQ(KeyOfHash(digest).Hex(),
            "abcd000000000000000000000000000000000000000000000000000000000000");
  EXPECT_NE(KeyOfHash(digest), KeyOfHash(0xabcd));
}

TEST(PageDirectoryTest, RepeatedAnnouncementsAreCounted) {
  PageDirectory directory = DirectoryFor({.pages = 1000});
  const auto keys = Chain(1, 4);
  ASSERT_TRUE(directory.Join(kA).ok());
  for (int chunk = 0; chunk < 3; ++chunk) directory.Stored(kA, Tier::kHost, keys);
  for (int chunk = 0; chunk < 2; ++chunk) directory.Removed(kA, Tier::kHost, keys);
  EXPECT_EQ(MatchOf(directory, kA, keys).pages[1], 4);
  directory.Removed(kA, Tier::kHost, keys);
  EXPECT_EQ(MatchOf(directory, kA, keys).pages[1], 0);
  EXPECT_EQ(directory.stats().pages, 0);
}

// A restarted worker leaves no stale entry behind, its late events change nothing, and slots serve
// again though the old entries still lie in the pages when it comes back.
TEST(PageDirectoryTest, ANewLifeStartsEmpty) {
  PageDirectory directory = DirectoryFor({.pages = 5000});
  const auto keys = Chain(1, 512);
  for (uint64_t other = 0; other < 7; ++other) {  // So that some pages are in shared sets.
    ASSERT_TRUE(directory.Join({100 + other}).ok());
    directory.Stored({100 + other}, Tier::kDevice, First(keys, 300));
  }
  for (uint64_t life = 1; life <= 600; ++life) {
    ASSERT_TRUE(directory.Join({1000 + life}).ok()) << life;
    for (const HolderMatch& match : directory.Find(keys, kNow)) {
      if (match.holder.value > 1000) {
        ASSERT_EQ(match.pages, (Pages{})) << life;
      }
    }
    for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk, Tier::kRemote}) {
      directory.Stored({1000 + life}, tier, First(keys, life % 512));
    }
    directory.Forget({1000 + life});
    directory.Stored({1000 + life}, Tier::kDevice, keys);
    ASSERT_EQ(directory.Find(keys, kNow).size(), 7u);
    if (life % 100 == 0) directory.Verify();
  }
  EXPECT_EQ(directory.stats().strangers, 600);
  while (!directory.Sweep(1000)) continue;
  directory.Verify();
  EXPECT_EQ(directory.stats().pages, 300);
  EXPECT_EQ(directory.stats().pairs, 7 * 300);
}

TEST(PageDirectoryTest, ClearDropsEveryTierAndKeepsTheHolder) {
  PageDirectory directory = DirectoryFor({.pages = 1000});
  const auto keys = Chain(1, 100);
  ASSERT_TRUE(directory.Join(kA).ok());
  ASSERT_TRUE(directory.Join(kB).ok());
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk, Tier::kRemote}) {
    directory.Stored(kA, tier, keys);
    directory.Stored(kB, tier, keys);
  }
  directory.Promise(kA, keys, Seconds(200), kNow);
  directory.Used(kA, Tier::kDevice, 100, 0);
  const double odds = directory.Odds(kA, Tier::kDevice);
  directory.Clear(kA);
  EXPECT_EQ(MatchOf(directory, kA, keys).pages, (Pages{}));
  EXPECT_EQ(MatchOf(directory, kA, keys).promised, 0);
  EXPECT_EQ(MatchOf(directory, kB, keys).pages[0], 100);
  EXPECT_EQ(directory.Odds(kA, Tier::kDevice), odds);
  directory.Stored(kA, Tier::kHost, First(keys, 5));
  EXPECT_EQ(MatchOf(directory, kA, keys).pages, (Pages{0, 5, 5, 5}));
  directory.Verify();
}

TEST(PageDirectoryTest, MoreLivesThanSlotsAreRefusedUntilOneLeaves) {
  PageDirectory directory = DirectoryFor({.pages = 1000});
  const auto keys = Chain(1, 10);
  for (uint64_t life = 1; life <= kHolderSlots; ++life) {
    ASSERT_TRUE(directory.Join({life}).ok());
    directory.Stored({life}, Tier::kDevice, keys);
  }
  EXPECT_EQ(directory.Join({999}).error().code, Code::kResourceExhausted);
  EXPECT_TRUE(directory.Join({1}).ok());  // It is there.
  directory.Clear({7});                   // Needs a second slot for a moment.
  directory.Forget({8});
  EXPECT_TRUE(directory.Join({999}).ok());
  EXPECT_EQ(MatchOf(directory, {999}, keys).pages[0], 0);
  EXPECT_EQ(MatchOf(directory, {9}, keys).pages[0], 10);
  directory.Verify();
}

// The fault: prompts that no two requests share fill a directory without end.
TEST(PageDirectoryTest, UniquePromptsFillItToItsCapacityAndNoFurther) {
  constexpr int64_t kPages = 200'000;
  PageDirectory directory = DirectoryFor({.pages = kPages});
  ASSERT_TRUE(directory.Join(kA).ok());
  const auto first = Chain(0, 512);
  directory.Stored(kA, Tier::kDevice, first);
  for (uint64_t prompt = 1; prompt < 1000; ++prompt) {
    directory.Stored(kA, Tier::kDevice, Chain(prompt, 512));
  }
  const DirectoryStats full = directory.stats();
  EXPECT_EQ(full.pages, kPages);
  EXPECT_EQ(full.refused_pages, 1000 * 512 - kPages);
  EXPECT_LE(full.bytes.value, 64 * full.pairs);
  // What was there is whole; what leaves makes room.
  EXPECT_EQ(directory.FindExactly(kA, first, kNow).pages[0], 512);
  directory.Removed(kA, Tier::kDevice, first);
  const auto next = Chain(5000, 512);
  directory.Stored(kA, Tier::kDevice, next);
  EXPECT_EQ(directory.FindExactly(kA, next, kNow).pages[0], 512);
  // A forgotten holder's pages make room while they still lie there.
  ASSERT_TRUE(directory.Join(kB).ok());
  directory.Forget(kA);
  for (uint64_t prompt = 0; prompt < 300; ++prompt) {
    directory.Stored(kB, Tier::kHost, Chain(prompt, 512));
  }
  EXPECT_EQ(directory.pages_of(kB), 300 * 512);
  EXPECT_EQ(directory.stats().bytes.value, full.bytes.value);
  directory.Verify();
}

// However many holders a page has, a pair takes 64 bytes at most.
TEST(PageDirectoryTest, APairTakes64Bytes) {
  constexpr int64_t kPages = 50'000;
  for (const int holders : {1, 2, 5, 6, 7, 64}) {
    PageDirectory directory = DirectoryFor({.pages = kPages});
    const auto keys = Chain(1, kPages + 100);
    for (int i = 0; i < holders; ++i) {
      const NodeId holder{1u + i};
      ASSERT_TRUE(directory.Join(holder).ok());
      directory.Stored(holder, Tier::kDevice, keys);
      directory.Stored(holder, Tier::kHost, keys);
    }
    const DirectoryStats stats = directory.stats();
    EXPECT_GE(stats.pairs, (kPages - 5) * holders);
    EXPECT_LE(stats.bytes.value, 64 * stats.pairs) << holders << " holders";
  }
}

// The fault: what is freed never merges, and memory grows with churn.
TEST(PageDirectoryTest, ChurnLeavesNothingBehind) {
  PageDirectory directory = DirectoryFor({.pages = 20'000});
  constexpr uint64_t kChains = 128, kHolders = 9;
  for (uint64_t i = 0; i < kHolders; ++i) ASSERT_TRUE(directory.Join({1 + i}).ok());
  std::array<std::array<bool, kHolders>, kChains> has{};
  std::vector<std::vector<BlockKey>> chains;
  for (uint64_t i = 0; i < kChains; ++i) chains.push_back(Chain(i, 128));
  Random random(1);
  Bytes peak;
  for (int step = 0; step < 20'000; ++step) {
    const auto chain = static_cast<size_t>(random.Between(0, kChains - 1));
    const auto holder = static_cast<size_t>(random.Between(0, kHolders - 1));
    bool& held = has[chain][holder];
    if (held)
      directory.Removed({1 + holder}, Tier::kDevice, chains[chain]);
    else
      directory.Stored({1 + holder}, Tier::kDevice, chains[chain]);
    held = !held;
    if (step == 5000) peak = directory.stats().bytes;
  }
  EXPECT_LE(directory.stats().bytes.value, peak.value * 105 / 100);
  for (size_t chain = 0; chain < kChains; ++chain) {
    for (size_t holder = 0; holder < kHolders; ++holder) {
      if (has[chain][holder]) directory.Removed({1 + holder}, Tier::kDevice, chains[chain]);
    }
  }
  EXPECT_EQ(directory.stats().pages, 0);
  EXPECT_EQ(directory.stats().shared_pages, 0);
  EXPECT_EQ(directory.stats().refused_pages, 0);
  EXPECT_EQ(directory.stats().unknown_removals, 0);
  directory.Verify();
}

// The fault: scoring a prompt of 240,000 tokens takes longer than answering it. A count that no
// machine disturbs; the time is in bench/page_directory_bench.cc.
TEST(PageDirectoryTest, LooksAtFewOf240000Tokens) {
  PageDirectory directory = DirectoryFor({.pages = 20'000});
  const auto keys = Chain(1, 15'000);
  for (uint64_t i = 0; i < 128; ++i) {
    ASSERT_TRUE(directory.Join({1 + i}).ok());
    directory.Stored({1 + i}, Tier::kDevice, First(keys, 117 * i + 3));
  }
  const auto matches = directory.Find(keys, kNow);
  for (uint64_t i = 0; i < 128; ++i) {
    EXPECT_EQ(matches[i].pages[0], static_cast<int32_t>(117 * i + 3));
  }
  EXPECT_LE(directory.stats().looked_pages, 128 * 9);
}

// The fault: 100 equal prompts within a millisecond each see no match, and 100 workers compute.
TEST(PageDirectoryTest, ABurstOfEqualPromptsComputesOnce) {
  PageDirectory directory = DirectoryFor({.pages = 1000});
  for (uint64_t i = 0; i < 16; ++i) ASSERT_TRUE(directory.Join({1 + i}).ok());
  const auto keys = Chain(1, 512);
  int computing = 0;
  NodeId chosen;
  for (int request = 0; request < 100; ++request) {
    const Seconds now = kNow + Seconds(1e-5 * request);
    const auto matches = directory.Find(keys, now);
    const auto best = std::ranges::max_element(matches, {}, &HolderMatch::promised);
    EXPECT_EQ(best->pages, (Pages{}));  // No evidence as yet.
    if (best->promised == 512) {
      EXPECT_EQ(best->holder, chosen);
      continue;
    }
    ++computing;
    chosen = {1 + static_cast<uint64_t>(request * 7 % 16)};
    directory.Promise(chosen, keys, now + Seconds(2), now);
  }
  EXPECT_EQ(computing, 1);

  // A part is there: it counts, and the promise for the rest stands.
  directory.Stored(chosen, Tier::kDevice, First(keys, 128));
  EXPECT_EQ(MatchOf(directory, chosen, keys).pages[0], 128);
  EXPECT_EQ(MatchOf(directory, chosen, keys).promised, 512);
  EXPECT_EQ(directory.stats().promises, 512 - 128);
  // Its time is over: what was not confirmed was never there.
  EXPECT_EQ(MatchOf(directory, chosen, keys, Seconds(102)).promised, 128);
  EXPECT_EQ(directory.FindExactly(chosen, keys, Seconds(102)).promised, 128);
}

TEST(PageDirectoryTest, APromiseEndsWithTheLifeThatGaveIt) {
  PageDirectory directory = DirectoryFor({.pages = 1000});
  const auto keys = Chain(1, 10);
  ASSERT_TRUE(directory.Join(kA).ok());
  directory.Promise(kA, keys, Seconds(200), kNow);
  directory.Forget(kA);
  ASSERT_TRUE(directory.Join(kB).ok());  // In the slot that was A's.
  EXPECT_EQ(MatchOf(directory, kB, keys).promised, 0);
}

TEST(PageDirectoryTest, APromiseThatIsBrokenCountsNoMore) {
  PageDirectory directory = DirectoryFor({.pages = 1000});
  const auto keys = Chain(1, 10);
  ASSERT_TRUE(directory.Join(kA).ok());
  ASSERT_TRUE(directory.Join(kB).ok());
  directory.Promise(kA, keys, Seconds(200), kNow);
  directory.Promise(kB, keys, Seconds(200), kNow);
  directory.Stored(kA, Tier::kDevice, First(keys, 2));
  directory.Break(kA, std::span(keys).subspan(6));
  EXPECT_EQ(MatchOf(directory, kA, keys).promised, 6);
  EXPECT_EQ(MatchOf(directory, kB, keys).promised, 10);
  directory.Break(kA, keys);
  EXPECT_EQ(MatchOf(directory, kA, keys).promised, 2);  // They are there.
  directory.Break({999}, keys);
  EXPECT_EQ(MatchOf(directory, kB, keys).promised, 10);
  directory.Break(kB, keys);
  EXPECT_EQ(directory.stats().promises, 0);
  directory.Verify();
}

TEST(PageDirectoryTest, PromisesAreBoundedAndExpiredOnesMakeRoom) {
  PageDirectory directory = DirectoryFor({.pages = 1000});
  ASSERT_TRUE(directory.Join(kA).ok());
  for (uint64_t prompt = 0; prompt < 100; ++prompt) {
    directory.Promise(kA, Chain(prompt, 100), Seconds(101), kNow);
  }
  EXPECT_LE(directory.stats().promises, 1024);
  EXPECT_GE(directory.stats().refused_promises, 100 * 100 - 1024);
  const auto keys = Chain(1000, 1000);
  directory.Promise(kA, keys, Seconds(103), Seconds(102));
  EXPECT_EQ(MatchOf(directory, kA, keys, Seconds(102)).promised, 1000);
}

TEST(PageDirectoryTest, SomeLongPromptsArePromisedAtOnce) {
  PageDirectory directory = DirectoryFor({.pages = 1'000'000});
  ASSERT_TRUE(directory.Join(kA).ok());
  constexpr int64_t kLongest = 131'072 / 16;  // Tokens of a context, in pages
  for (uint64_t prompt = 0; prompt < 7; ++prompt) {
    directory.Promise(kA, Chain(prompt, kLongest), Seconds(101), kNow);
  }
  EXPECT_EQ(directory.stats().refused_promises, 0);
}

TEST(PageDirectoryTest, LearnsHowOftenACopyIsThere) {
  PageDirectory directory = DirectoryFor({.pages = 1000});
  ASSERT_TRUE(directory.Join(kA).ok());
  EXPECT_DOUBLE_EQ(directory.Odds(kA, Tier::kDevice), CopyOdds::kAssumed);
  for (int i = 0; i < 500; ++i) {
    directory.Used(kA, Tier::kDevice, 512, 512);
    directory.Used(kA, Tier::kHost, 10, i % 10 < 7 ? 10 : 0);
    directory.Used(kA, Tier::kDisk, 10, 0);
    directory.Used(kA, Tier::kRemote, 0, 0);  // Nothing to learn from.
  }
  EXPECT_GT(directory.Odds(kA, Tier::kDevice), 0.995);
  EXPECT_NEAR(directory.Odds(kA, Tier::kHost), 0.7, 0.05);
  EXPECT_LT(directory.Odds(kA, Tier::kDisk), 0.07);
  EXPECT_DOUBLE_EQ(directory.Odds(kA, Tier::kRemote), CopyOdds::kAssumed);
  EXPECT_DOUBLE_EQ(directory.Chances(kA).host_copy, directory.Odds(kA, Tier::kHost));
  // It forgets: a holder that has become reliable is believed after some uses.
  for (int i = 0; i < 150; ++i) directory.Used(kA, Tier::kDisk, 10, 10);
  EXPECT_GT(directory.Odds(kA, Tier::kDisk), 0.85);
  directory.Forget(kA);
  ASSERT_TRUE(directory.Join(kA).ok());
  EXPECT_DOUBLE_EQ(directory.Odds(kA, Tier::kDisk), CopyOdds::kAssumed);
}

}  // namespace
}  // namespace divisi
