// The directory beside plain maps, driven by the same random operations.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "divisi/core/check.h"
#include "divisi/core/random.h"
#include "divisi/kv/page_directory.h"

namespace divisi {
namespace {

PageDirectory DirectoryFor(DirectoryOptions options) {
  auto directory = PageDirectory::Create(options);
  CHECK(directory.ok());
  return *std::move(directory);
}

std::vector<BlockKey> Chain(uint64_t number, int64_t pages) {
  Random random(number);
  std::vector<BlockKey> keys(pages);
  for (BlockKey& key : keys) {
    for (uint8_t& byte : key.bytes) byte = static_cast<uint8_t>(random.Next64());
  }
  return keys;
}

class PlainDirectory {
 public:
  std::map<uint64_t, std::map<BlockKey, std::array<int, kTiers>>> holders;
  std::map<uint64_t, std::map<BlockKey, double>> promises;

  bool Has(uint64_t holder, int level, const BlockKey& key, Seconds now) const {
    const auto& pages = holders.at(holder);
    if (const auto page = pages.find(key); page != pages.end()) {
      for (int tier = 0; tier <= std::min(level, kTiers - 1); ++tier) {
        if (page->second[tier] > 0) return true;
      }
    }
    if (level < kTiers || !promises.contains(holder)) return false;
    const auto promise = promises.at(holder).find(key);
    return promise != promises.at(holder).end() && promise->second > now.value;
  }
  int Leading(uint64_t holder, int level, std::span<const BlockKey> keys, Seconds now) const {
    int pages = 0;
    while (pages < static_cast<int>(keys.size()) && Has(holder, level, keys[pages], now)) ++pages;
    return pages;
  }
  int64_t Pairs() const {
    int64_t pairs = 0;
    for (const auto& [holder, pages] : holders) {
      for (const auto& [key, counts] : pages) {
        pairs += std::ranges::any_of(counts, [](int count) { return count > 0; });
      }
    }
    return pairs;
  }
};

class PageDirectoryPropertyTest : public ::testing::TestWithParam<int> {
 protected:
  // Chains that part from each other at some page.
  void MakeChains() {
    for (int i = 0; i < 6; ++i) {
      auto keys = Chain(random_.Next64(), random_.Between(1, 90));
      if (i > 0) {
        const size_t shared = random_.Between(0, std::min(keys.size(), chains_[0].size()));
        std::copy_n(chains_[0].begin(), shared, keys.begin());
      }
      chains_.push_back(keys);
    }
  }

  std::span<const BlockKey> Part() {
    const auto& chain = chains_[random_.Between(0, static_cast<int64_t>(chains_.size()) - 1)];
    const int64_t begin = random_.Chance(0.7) ? 0 : random_.Between(0, chain.size() - 1);
    return std::span(chain).subspan(begin, random_.Between(0, chain.size() - begin));
  }

  void Update(uint64_t holder) {
    const NodeId id{holder};
    const auto tier = static_cast<int>(random_.Between(0, 3));
    const auto keys = Part();
    switch (random_.Between(0, 9)) {
      case 0:
      case 1:
      case 2:
      case 3:
        directory_.Stored(id, static_cast<Tier>(tier), keys);
        for (const BlockKey& key : keys) {
          int& count = plain_.holders[holder][key][tier];
          count = std::min(count + 1, 15);
          plain_.promises[holder].erase(key);
        }
        break;
      case 4:
      case 5:
      case 6:
        directory_.Removed(id, static_cast<Tier>(tier), keys);
        for (const BlockKey& key : keys) {
          int& count = plain_.holders[holder][key][tier];
          count = std::max(count - 1, 0);
        }
        break;
      case 7:
        if (random_.Chance(0.5)) Leave(holder, random_.Chance(0.5));
        break;
      default:
        Promise(holder, keys);
    }
  }

  void Leave(uint64_t holder, bool comes_back) {
    plain_.promises.erase(holder);
    plain_.holders.erase(holder);
    if (comes_back) {
      directory_.Clear({holder});
      plain_.holders[holder];
    } else {
      directory_.Forget({holder});
    }
  }

  // By one or two holders a page: of a third's the directory forgets one.
  void Promise(uint64_t holder, std::span<const BlockKey> keys) {
    if (holder > 2) return;
    const Seconds until = now_ + Seconds(random_.Uniform());
    directory_.Promise({holder}, keys, until, now_);
    for (const BlockKey& key : keys) plain_.promises[holder][key] = until.value;
    if (!random_.Chance(0.3)) return;
    const auto broken = keys.subspan(random_.Between(0, static_cast<int64_t>(keys.size())));
    directory_.Break({holder}, broken);
    for (const BlockKey& key : broken) plain_.promises[holder].erase(key);
  }

  void Compare() {
    const auto keys = Part();
    for (const HolderMatch& match : directory_.Find(keys, now_)) {
      const HolderMatch exact = directory_.FindExactly(match.holder, keys, now_);
      for (int level = 0; level <= kTiers; ++level) {
        const uint64_t holder = match.holder.value;
        const int leading = plain_.Leading(holder, level, keys, now_);
        ASSERT_EQ(level < kTiers ? exact.pages[level] : exact.promised, leading);
        const int end = level < kTiers ? match.pages[level] : match.promised;
        ASSERT_GE(end, leading);
        ASSERT_TRUE(end == 0 || plain_.Has(holder, level, keys[end - 1], now_));
        if (end < static_cast<int>(keys.size())) {
          ASSERT_FALSE(plain_.Has(holder, level, keys[end], now_));
        }
      }
    }
  }

  Random random_{static_cast<uint64_t>(GetParam())};
  PageDirectory directory_ = DirectoryFor({.pages = 10'000});
  PlainDirectory plain_;
  std::vector<std::vector<BlockKey>> chains_;
  Seconds now_{1000};
};

TEST_P(PageDirectoryPropertyTest, EqualsPlainMaps) {
  MakeChains();
  for (int step = 0; step < 2000; ++step) {
    const auto holder = static_cast<uint64_t>(random_.Between(1, 12));
    if (!plain_.holders.contains(holder)) {
      ASSERT_TRUE(directory_.Join({holder}).ok());
      plain_.holders[holder];
    } else {
      Update(holder);
    }
    now_ += Seconds(0.01 * random_.Uniform());
    if (step % 7 == 0) Compare();
    if (HasFatalFailure()) FAIL() << "step " << step;
    if (step % 100 == 0) {
      directory_.Verify();
      ASSERT_EQ(directory_.stats().pairs, plain_.Pairs());
    }
    if (random_.Chance(0.02)) directory_.Sweep(random_.Between(1, 3000));
  }
  ASSERT_EQ(directory_.stats().refused_promises, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PageDirectoryPropertyTest, ::testing::Range(0, 10));

}  // namespace
}  // namespace divisi
