// How far along a chain of pages each of many holders goes, when one look at a page shows all of
// its holders: bisection for all holders at once. Pages are looked at in rounds, each a batch whose
// memory accesses overlap; a stretch between two pages that were looked at is looked into only
// while some holder has the earlier page and not the later one.
//
// What the answer means: a holder's end is a page that it lacks (or the chain's length), it has the
// page before, and it has every page before that was looked at. Pages that were not are taken as
// had: where a holder lacks none before one that it has, as is the rule, the end is exact; where
// one is missing in the middle, the end is that gap or a later one.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace divisi {

// Bit h % 64 of word h / 64: holder h has the page at this level.
template <int kLevels, int kWords>
struct LevelMasks {
  std::array<std::array<uint64_t, kWords>, kLevels> at;
};

template <int kLevels, int kWords>
class ChainSearch {
 public:
  using Masks = LevelMasks<kLevels, kWords>;
  // Of holder h at level l: [l][h].
  using Ends = std::array<std::array<int32_t, 64 * kWords>, kLevels>;

  static constexpr int32_t kMostPages = 1 << 26;  // Of a chain: a product fits 32 bits.

  // look(span of positions, masks out [same length]): who has the pages there, each position once.
  // live: who is asked about. Ends of others are meaningless.   Requires: pages <= kMostPages.
  template <typename Look>
  void Run(int32_t pages, const Masks& live, Look look, Ends& ends) {
    for (auto& level : ends) level.fill(pages);
    MakeRoom(2 * static_cast<size_t>(pages) + 2);
    masks_[kLive] = live;
    for (auto& level : masks_[kNobody].at) level.fill(0);
    used_ = kNobody + 1;
    open_.clear();
    if (pages > 0) open_.push_back({-1, pages, kLive, kNobody});
    while (!open_.empty()) {
      Choose();
      const std::span<const int32_t> positions(positions_);
      look(positions, std::span(masks_.get() + used_, positions.size()));
      looked_ += static_cast<int64_t>(positions.size());
      Narrow(ends);
    }
  }

  int64_t looked() const { return looked_; }  // Pages, since the start.

 private:
  // Looks of one round: enough to overlap their misses, few enough not to look in vain.
  static constexpr int32_t kAtOnce = 24;

  static constexpr uint32_t kLive = 0;
  static constexpr uint32_t kNobody = 1;

  // Masks by their place in masks_: pages before `from` that were looked at are had by `alive`;
  // `beyond` have page `to`. -1 and the chain's length stand for pages that all and none have.
  struct Stretch {
    int32_t from;
    int32_t to;
    uint32_t alive;
    uint32_t beyond;
  };

  static int32_t LooksIn(const Stretch& stretch, int32_t ways) {
    return std::min(stretch.to - stretch.from - 1, ways);
  }

  // Positions that cut each open stretch into equal parts. The first round looks at the first page
  // too, which settles a chain that nobody has.
  void Choose() {
    positions_.clear();
    const auto stretches = static_cast<int32_t>(open_.size());
    ways_ = std::clamp(kAtOnce / stretches, 1, kAtOnce);
    for (const Stretch& stretch : open_) {
      const int32_t looks = LooksIn(stretch, ways_);
      for (int32_t i = 1; i <= looks; ++i) {
        const int32_t width = stretch.to - stretch.from;
        positions_.push_back(stretch.from + (looks == 1 ? width / 2 : i * width / (looks + 1)));
      }
      if (stretch.from < 0 && looks > 1) positions_[0] = 0;
    }
  }

  void Narrow(Ends& ends) {
    next_.clear();
    uint32_t look = used_;
    used_ += static_cast<uint32_t>(positions_.size());
    const int32_t* position = positions_.data();
    for (const Stretch& stretch : open_) {
      Stretch part = stretch;
      for (int32_t left = LooksIn(stretch, ways_); left > 0; --left) {
        part.to = *position++;
        part.beyond = look;
        Keep(part, ends);
        part.from = part.to;
        part.alive = Both(part.alive, look++);
      }
      part.to = stretch.to;
      part.beyond = stretch.beyond;
      Keep(part, ends);
    }
    open_.swap(next_);
  }

  uint32_t Both(uint32_t a, uint32_t b) {
    Masks& both = masks_[used_];
    for (int level = 0; level < kLevels; ++level) {
      for (int word = 0; word < kWords; ++word) {
        both.at[level][word] = masks_[a].at[level][word] & masks_[b].at[level][word];
      }
    }
    return used_++;
  }

  // Writes the ends of a stretch without pages between; keeps another for the next round where some
  // holder ends in it.
  void Keep(const Stretch& part, Ends& ends) {
    const Masks& alive = masks_[part.alive];
    const Masks& beyond = masks_[part.beyond];
    uint64_t any = 0;
    for (int level = 0; level < kLevels; ++level) {
      for (int word = 0; word < kWords; ++word) {
        any |= alive.at[level][word] & ~beyond.at[level][word];
      }
    }
    if (any == 0) return;
    if (part.to - part.from > 1) {
      next_.push_back(part);
      return;
    }
    for (int level = 0; level < kLevels; ++level) {
      for (int word = 0; word < kWords; ++word) {
        uint64_t ended = alive.at[level][word] & ~beyond.at[level][word];
        for (; ended != 0; ended &= ended - 1) {
          int32_t& end = ends[level][64 * word + std::countr_zero(ended)];
          end = std::min(end, part.to);
        }
      }
    }
  }

  // Masks are written before they are read; vectors would zero them first.
  void MakeRoom(size_t masks) {
    if (masks <= room_) return;
    room_ = masks;
    masks_ = std::make_unique_for_overwrite<Masks[]>(masks);
  }

  int32_t ways_ = 1;
  int64_t looked_ = 0;
  std::vector<Stretch> open_;
  std::vector<Stretch> next_;
  std::vector<int32_t> positions_;
  // Of all pages that were looked at, and of who is alive behind each.
  std::unique_ptr<Masks[]> masks_;
  size_t room_ = 0;
  uint32_t used_ = 0;
};

}  // namespace divisi
