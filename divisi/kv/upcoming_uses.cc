#include "divisi/kv/upcoming_uses.h"

#include <utility>

namespace divisi {

std::optional<int64_t> UpcomingUses::Expect(RequestId request, std::span<const BlockKey> keys) {
  if (requests() >= most_requests_ || requests_.contains(request)) return std::nullopt;
  const int64_t place = next_place_++;
  requests_[request] = {place, {keys.begin(), keys.end()}};
  for (const BlockKey& key : keys) places_[key].insert(place);
  return place;
}

std::vector<BlockKey> UpcomingUses::Forget(RequestId request) {
  const auto found = requests_.find(request);
  if (found == requests_.end()) return {};
  Waiting waiting = std::move(found->second);
  requests_.erase(found);
  for (const BlockKey& key : waiting.keys) {
    const auto places = places_.find(key);
    if (places == places_.end()) continue;  // The request has the page twice.
    places->second.erase(waiting.place);
    if (places->second.empty()) places_.erase(places);
  }
  return std::move(waiting.keys);
}

std::optional<int64_t> UpcomingUses::NextUse(const BlockKey& key) const {
  const auto found = places_.find(key);
  if (found == places_.end()) return std::nullopt;
  return *found->second.begin();
}

}  // namespace divisi
