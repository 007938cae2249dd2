#include "divisi/kv/chain_search.h"

#include <gtest/gtest.h>

#include "divisi/core/random.h"

namespace divisi {
namespace {

constexpr int kLevels = 3;
constexpr int kHolders = 128;
using Search = ChainSearch<kLevels, 2>;
using Masks = Search::Masks;

// Which holder has which page, plainly.
struct Chain {
  explicit Chain(int pages) : at(pages) {}
  std::vector<Masks> at;
  std::vector<int> looked = std::vector<int>(at.size());

  void Set(int level, int page, int holder, bool has) {
    const uint64_t bit = uint64_t{1} << (holder % 64);
    uint64_t& word = at[page].at[level][holder / 64];
    word = has ? word | bit : word & ~bit;
  }
  bool Has(int level, int page, int holder) const {
    return (at[page].at[level][holder / 64] >> (holder % 64) & 1) != 0;
  }
  // Levels above have what those below have.
  void Lengths(int holder, std::array<int, kLevels> lengths) {
    int length = 0;
    for (int level = 0; level < kLevels; ++level) {
      length = std::max(length, lengths[level]);
      for (int page = 0; page < static_cast<int>(at.size()); ++page) {
        Set(level, page, holder, page < length);
      }
    }
  }
  int Leading(int level, int holder) const {
    int page = 0;
    while (page < static_cast<int>(at.size()) && Has(level, page, holder)) ++page;
    return page;
  }
};

Search::Ends EndsOf(Chain& chain, Search& search) {
  Masks live;
  for (auto& level : live.at) level.fill(~uint64_t{0});
  Search::Ends ends;
  search.Run(
      static_cast<int32_t>(chain.at.size()), live,
      [&](std::span<const int32_t> positions, std::span<Masks> masks) {
        for (size_t i = 0; i < positions.size(); ++i) {
          masks[i] = chain.at[positions[i]];
          ++chain.looked[positions[i]];
        }
      },
      ends);
  return ends;
}

TEST(ChainSearchTest, NobodyAndNothing) {
  Search search;
  Chain none(0);
  EXPECT_EQ(EndsOf(none, search)[0][5], 0);
  Chain absent(512);
  EXPECT_EQ(EndsOf(absent, search)[2][127], 0);
  EXPECT_LE(search.looked(), 24);  // The first page settles it.
}

TEST(ChainSearchTest, EqualsWalkingWherePrefixesAreWhole) {
  Random random(1);
  Search search;
  for (int round = 0; round < 200; ++round) {
    const int pages = static_cast<int>(random.Between(1, 300));
    Chain chain(pages);
    const int distinct = static_cast<int>(random.Between(1, 40));
    for (int holder = 0; holder < kHolders; ++holder) {
      std::array<int, kLevels> lengths;
      for (int& length : lengths) {
        length = static_cast<int>(random.Between(0, distinct) * pages / distinct);
      }
      chain.Lengths(holder, lengths);
    }
    const Search::Ends ends = EndsOf(chain, search);
    for (int level = 0; level < kLevels; ++level) {
      for (int holder = 0; holder < kHolders; ++holder) {
        ASSERT_EQ(ends[level][holder], chain.Leading(level, holder)) << round;
      }
    }
    for (const int looks : chain.looked) ASSERT_LE(looks, 1);
  }
}

// With pages missing in the middle: each end is such a gap, or the true end; the page before it is
// had, and so is every page before it that was looked at.
TEST(ChainSearchTest, HonoursEveryGapThatItSees) {
  Random random(2);
  Search search;
  for (int round = 0; round < 200; ++round) {
    const int pages = static_cast<int>(random.Between(1, 300));
    Chain chain(pages);
    for (int holder = 0; holder < kHolders; ++holder) {
      const int length = static_cast<int>(random.Between(0, pages));
      chain.Lengths(holder, {length, length, length});
    }
    for (int hole = 0; hole < 200; ++hole) {
      chain.Set(static_cast<int>(random.Between(0, kLevels - 1)),
                static_cast<int>(random.Between(0, pages - 1)),
                static_cast<int>(random.Between(0, kHolders - 1)), false);
    }
    const Search::Ends ends = EndsOf(chain, search);
    for (int level = 0; level < kLevels; ++level) {
      for (int holder = 0; holder < kHolders; ++holder) {
        const int end = ends[level][holder];
        ASSERT_GE(end, chain.Leading(level, holder));
        ASSERT_TRUE(end == pages || !chain.Has(level, end, holder));
        for (int page = 0; page < end; ++page) {
          if (chain.looked[page] > 0 || page == end - 1) {
            ASSERT_TRUE(chain.Has(level, page, holder)) << page << " of " << end;
          }
        }
      }
    }
  }
}

TEST(ChainSearchTest, LooksAtFewPages) {
  Search search;
  Chain alike(4096);
  for (int holder = 0; holder < kHolders; ++holder) alike.Lengths(holder, {3000, 3000, 3000});
  EndsOf(alike, search);
  EXPECT_LE(search.looked(), 80);

  Search other;
  Chain differing(4096);
  for (int holder = 0; holder < kHolders; ++holder) {
    const int length = 32 * holder + 17;
    differing.Lengths(holder, {length, length, length});
  }
  EndsOf(differing, other);
  EXPECT_LE(other.looked(), 128 * 7);  // At least a look on each side of 128 ends, of 4096 pages.
}

}  // namespace
}  // namespace divisi
