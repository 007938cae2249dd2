#include "divisi/kv/remote_targets.h"

#include <algorithm>

namespace divisi {

const RemoteTargets::Target* RemoteTargets::Find(uint64_t target) const {
  const auto found = targets_.find(target);
  return found == targets_.end() ? nullptr : &found->second;
}

RemoteTargets::Target& RemoteTargets::Of(uint64_t target, Seconds now) {
  if (targets_.size() >= kMost && !targets_.contains(target)) {
    std::erase_if(targets_, [now](const auto& entry) {
      const Target& old = entry.second;
      return old.puts_open == 0 && now >= std::max(old.gets.until, old.puts.until);
    });
  }
  return targets_[target];
}

bool RemoteTargets::GetsPause(uint64_t target, Seconds now) const {
  const Target* known = Find(target);
  return known != nullptr && now < known->gets.until;
}

bool RemoteTargets::PutsPause(uint64_t target, Seconds now) const {
  const Target* known = Find(target);
  return known != nullptr && now < known->puts.until;
}

bool RemoteTargets::PutsFail(uint64_t target) const {
  const Target* known = Find(target);
  return known != nullptr && known->puts.length > Seconds(0);
}

size_t RemoteTargets::PutsOpen(uint64_t target) const {
  const Target* known = Find(target);
  return known == nullptr ? 0 : known->puts_open;
}

void RemoteTargets::Failed(Pause& pause, Seconds now) const {
  if (now < pause.until) return;  // Of the same time.
  pause.length = std::clamp(pause.length * 2, first_, most_);
  pause.until = now + pause.length;
}

void RemoteTargets::GetEnded(uint64_t target) {
  if (const auto found = targets_.find(target); found != targets_.end()) {
    found->second.gets.length = Seconds(0);
  }
}

void RemoteTargets::PutEnded(uint64_t target) {
  if (const auto found = targets_.find(target); found != targets_.end()) {
    found->second.puts.length = Seconds(0);
  }
}

void RemoteTargets::PutReleased(uint64_t target) { --targets_.at(target).puts_open; }

}  // namespace divisi
