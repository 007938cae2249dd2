// One load of pages into the device's memory, layer by layer: all pages' first layers, then their
// next ones, so that computing can follow through a LayerGate while the rest is read.
//
// The pages are a contiguous part of a sequence. A page that can't be read, or is not the one that
// was asked for, ends the usable prefix before it: the gate fails at once, those before it are read
// on, those behind it no more.
//
// Where some come whole (PageStore::whole), or nobody gains by following (PageLoad::by_layers) and
// some come from afar, all are read page by page, in order: computing cannot follow before the last
// of them is there, and what is there in the end is as long as can be.
//
// Reading may hang, and whoever waits for the load may give up meanwhile: then nothing may land in
// its pages any more, since they are somebody else's. So what can hang is read into a buffer, of
// the store's (PageStore::staged) or of the reader's, and taken from there under Landing's lock.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "divisi/core/clock.h"
#include "divisi/kv/landing.h"
#include "divisi/kv/layer_gate.h"
#include "divisi/kv/page_store.h"
#include "divisi/plan/kv_tiers.h"

namespace divisi {

const char* TierName(Tier tier);  // "host"

// The tiers below the device, and other workers'; one that is missing finds nothing and takes
// nothing. Shared with the threads that read them, which outlive their owner where a read hangs.
struct TierStores {
  std::shared_ptr<PageStore> host, disk, remote, peer;
  PageStore* Of(Tier tier) const;
};

struct LoadedPage {
  BlockKey key;
  Tier tier = Tier::kHost;
  std::span<std::byte> to;  // The whole page.
};

struct PageLoad {
  uint64_t id = 0;
  std::vector<LoadedPage> pages;    // In the order of the sequence, without a gap.
  BlockKey root;                    // Of their key space.
  int64_t position = 0;             // Of the first page's first token.
  Seconds deadline;                 // A time of the clock. Past it the rest is not read.
  std::shared_ptr<LayerGate> gate;  // None: nobody follows. Shared with who computes.
  // Layers as early as can be, for who follows. False: of the pool whole pages, which is faster.
  bool by_layers = true;
};

enum class LoadEnd { kDone, kFailed, kLate, kCancelled };

// Whether an error says something about the page: not what the system lacks, nor who was late or
// away on the way to another process.
bool SaysOfPage(Tier tier, Code code);

struct BadPage {
  BlockKey key;
  Tier tier = Tier::kHost;
  Code code = Code::kInternal;  // Perhaps one that says nothing about the page.
  std::string why;
};

struct LoadDone {
  uint64_t id = 0;
  LoadEnd end = LoadEnd::kDone;  // kDone: all pages.
  int64_t pages_ok = 0;          // The prefix that is there whole, and checked.
  // Of this load, and what was found out of loads that were given up before.
  std::vector<BadPage> bad;
  Seconds took;  // From its start.
};

// What was read of each tier, and how long that took.
struct LoadTally {
  std::array<Bytes, kSources> read{};
  std::array<Seconds, kSources> reading{};
  std::array<int64_t, kSources> pages{};  // Whole ones.
};

struct LoadingTerms {
  PageShape shape;
  BlockKey model;
  // Read at once of one page, of a store that is not in memory: as many whole layers as fit, at
  // least one.
  Bytes run{int64_t{256} << 10};
  // Read ahead of the run at hand, by hints.
  Bytes ahead{int64_t{8} << 20};
};

// How many layers are read at a time: 1, 2, 4 and so on up to `most`, and down to 1 again at the
// end. Large reads are faster, but computing begins after the first group, and what is left to
// compute after the last one adds to the whole. All at once where `most` covers all layers.
// Requires: layers >= 1, most >= 1.
std::vector<int> LayerGroups(int layers, int most);

// Carries out `load` on the calling thread, until its end, its deadline or `landing` gives it up.
class PageLoading {
 public:
  // All outlive it.
  PageLoading(const PageLoad& load, const TierStores& stores, const LoadingTerms& terms);

  LoadDone Run(Landing& landing, const Clock& clock);
  const LoadTally& tally() const { return tally_; }

 private:
  void OpenPages(Landing& landing, const Clock& clock);
  Result<std::unique_ptr<PageReader>> OpenPage(size_t page, const Landing& landing,
                                               const Clock& clock);
  void HintOpening(size_t page);
  void UnhintOpening(size_t page);
  void ReadPages(Landing& landing, const Clock& clock);
  Result<void> ReadPage(size_t page, Landing& landing, const Clock& clock);
  void ReadGroups(Landing& landing, const Clock& clock);
  Result<void> ReadLayers(size_t page, int first, int count, Landing& landing);
  void ReadRun(size_t page, size_t group, Landing& landing, const Clock& clock);
  void HintTo(size_t end);  // Runs are numbered in the order of reading.
  void CutAt(size_t page, const Error& error);
  bool Stop(const Landing& landing, const Clock& clock);
  PageStore* StoreOf(size_t page) const { return stores_.Of(load_.pages[page].tier); }
  PageUse use() const { return by_page_ ? PageUse::kWhole : PageUse::kLayers; }
  size_t TierOf(size_t page) const { return static_cast<size_t>(load_.pages[page].tier); }

  const PageLoad& load_;
  const TierStores& stores_;
  const LoadingTerms& terms_;
  std::vector<int> counts_;  // Layers of each group,
  std::vector<int> firsts_;  // and the first one.
  bool by_page_ = false;
  size_t hints_ = 0;    // Runs to hint ahead.
  size_t hinted_ = 0;   // Runs before it were, in their order: one without room stops the rest.
  size_t opening_ = 0;  // Pages whose opening was hinted.
  size_t usable_ = 0;   // Pages before the first bad one.
  size_t whole_ = 0;    // Pages whose last layers were read.
  std::vector<std::unique_ptr<PageReader>> readers_;
  std::vector<std::byte> buffer_;
  LoadTally tally_;
  LoadDone done_;
};

}  // namespace divisi
