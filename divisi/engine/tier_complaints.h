// What goes wrong with pages of the KV tiers, to the log: the first page of a tier at once, then a
// line every ten seconds at most, which says how many were left out since. A request does not fail
// by it, it computes instead; the log says why it had to.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "divisi/core/log.h"
#include "divisi/core/units.h"
#include "divisi/kv/tier_io.h"

namespace divisi {

inline constexpr Seconds kComplainEvery{10};

class TierComplaints {
 public:
  // logger outlives this.
  explicit TierComplaints(Logger& logger) : logger_(logger) {}

  // A page that a load could not read, and why. What is no fault says nothing: a page that gave way
  // meanwhile, as pages of the pool and of other workers do.
  void Unread(const BadPage& bad, Seconds now);
  // A page that did not come into a tier. Of one that did: nothing.
  void Unsaved(const SaveDone& done, Seconds now);

 private:
  struct Kept {
    std::optional<Seconds> until;  // Nothing is said before.
    int64_t unsaid = 0;            // Since the last line
  };
  using ByTier = std::array<Kept, kSources>;

  bool MaySay(Kept& kept, Seconds now);
  void Say(Kept& kept, std::string_view event, Json::Object fields);

  Logger& logger_;
  ByTier unread_, unsaved_;
};

}  // namespace divisi
