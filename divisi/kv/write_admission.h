// Which pages that host memory gives up are worth a write to the disk.
//
// A disk's endurance allows a small share of what is computed (section 9.5.2), and most pages are
// never used again. So a page is written when a request in the queue waits for it, or when its
// chance of being used again is high for what the budget holds:
//
//   chance = b * product over its traits of (share of that trait's pages that came back) / b
//   threshold = b * exp(2 (1 - 2 level / burst)),   b: share of all judged pages that came back
//
// The shares are counted while running: each page that leaves host memory is judged, and one that
// is used later came back, whether it was written or not. A share starts from kPriorPages imagined
// pages of the trait's prior. The budget is a token bucket, filled at the rate of the endurance;
// half full it admits what is likelier than the average page to be used again, the fuller the
// more; empty, nothing.
//
// The traits, the prior and the constants were chosen on the Mooncake conversation trace and held
// against the synthetic one (bench/RESULTS.md).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "divisi/core/units.h"
#include "divisi/kv/session_state.h"
#include "divisi/plan/kv_tiers.h"

namespace divisi {

// What was known of a page when it was last used.
struct PageTraits {
  int64_t uses = 1;           // Requests that used it: was its family seen before?
  int64_t reused_pages = 0;   // Pages of its last request that had been used before.
  int64_t answer_tokens = 0;  // Of its last request; 0: not known.
  bool continues = false;     // New, behind a prefix that had been used before.
  SessionState session = SessionState::kUnknown;  // Of its last request, as hinted.
};

struct WriteBudget {
  double pages_per_second = 0;
  double burst_pages = 0;  // The bucket starts half full.
};

// Of a disk that is to last its rated life, with the allowance of `burst` as the most that may be
// saved up. Requires: page above 0.
WriteBudget BudgetOf(const Endurance& endurance, Bytes page, Seconds burst);

class WriteAdmission {
 public:
  explicit WriteAdmission(const WriteBudget& budget)
      : budget_(budget), level_(budget.burst_pages / 2) {}

  // Is the page worth a write now? Takes its token if so. awaited: a request in the queue waits for
  // it. Otherwise it is judged by its chance: if it is used later, call CameBack with the traits.
  bool Admit(const PageTraits& traits, bool awaited, Seconds now);
  void CameBack(const PageTraits& traits);

  double Chance(const PageTraits& traits) const;
  double Threshold() const;

  double level_pages() const { return level_; }  // What may be written at once.
  const WriteBudget& budget() const { return budget_; }
  int64_t judged() const { return judged_in_all_; }
  int64_t admitted() const { return admitted_; }

 private:
  static constexpr int kTraits = 5;
  static constexpr int kValues = 32;
  struct Share {
    double judged = 0;
    double came_back = 0;
  };
  static std::array<int, kTraits> ValuesOf(const PageTraits& traits);
  double Base() const;
  void Count(const PageTraits& traits, double judged, double came_back);
  void Fill(Seconds now);

  WriteBudget budget_;
  double level_;
  Seconds filled_{0};
  Share all_;
  std::array<std::array<Share, kValues>, kTraits> shares_{};
  int64_t judged_in_all_ = 0;
  int64_t admitted_ = 0;
};

}  // namespace divisi
