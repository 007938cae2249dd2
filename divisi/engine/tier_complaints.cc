#include "divisi/engine/tier_complaints.h"

#include <utility>

namespace divisi {

void TierComplaints::Unread(const BadPage& bad, Seconds now) {
  const bool others = bad.tier == Tier::kRemote || bad.tier == Tier::kPeer;
  if (bad.code == Code::kCancelled || (others && bad.code == Code::kNotFound)) return;
  Kept& kept = unread_[static_cast<size_t>(bad.tier)];
  if (!MaySay(kept, now)) return;
  Say(kept, "a page could not be read and is computed instead",
      {{"tier", TierName(bad.tier)}, {"page", bad.key.Hex()}, {"why", bad.why}});
}

void TierComplaints::Unsaved(const SaveDone& done, Seconds now) {
  if (done.ok) return;
  Kept& kept = unsaved_[static_cast<size_t>(done.to)];
  if (!MaySay(kept, now)) return;
  Say(kept, "a page could not be saved",
      {{"tier", TierName(done.to)},
       {"from", TierName(done.from)},
       {"page", done.key.Hex()},
       {"why", done.why}});
}

bool TierComplaints::MaySay(Kept& kept, Seconds now) {
  const bool may = !kept.until || now >= *kept.until;
  if (may) {
    kept.until = now + kComplainEvery;
  } else {
    ++kept.unsaid;
  }
  return may;
}

void TierComplaints::Say(Kept& kept, std::string_view event, Json::Object fields) {
  const int64_t unsaid = std::exchange(kept.unsaid, 0);
  if (unsaid > 0) fields.push_back({"more_since_the_last_line", unsaid});
  logger_.Log(LogLevel::kWarning, event, std::move(fields));
}

}  // namespace divisi
