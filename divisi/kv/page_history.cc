#include "divisi/kv/page_history.h"

namespace divisi {

int64_t PageHistory::KnownPrefix(std::span<const BlockKey> chain) const {
  size_t known = 0;
  while (known < chain.size() && entries_.contains(chain[known])) ++known;
  return static_cast<int64_t>(known);
}

PageHistory::Entry& PageHistory::Touch(const BlockKey& key) {
  const auto found = entries_.find(key);
  if (found != entries_.end()) {
    by_use_.splice(by_use_.end(), by_use_, found->second.place);
    return found->second;
  }
  if (size() >= most_pages_ && !by_use_.empty()) {
    entries_.erase(by_use_.front());
    by_use_.pop_front();
  }
  by_use_.push_back(key);
  Entry& entry = entries_[key];
  entry.place = std::prev(by_use_.end());
  return entry;
}

void PageHistory::Ended(std::span<const BlockKey> chain, int64_t answer_tokens,
                        SessionState session) {
  for (const BlockKey& key : chain) {
    const auto found = entries_.find(key);
    if (found == entries_.end() || found->second.record.judged) continue;
    found->second.record.traits.answer_tokens = answer_tokens;
    found->second.record.traits.session = session;
  }
}

PageRecord PageHistory::Of(const BlockKey& key) const {
  const auto found = entries_.find(key);
  if (found != entries_.end()) return found->second.record;
  return {.last_use = requests_};
}

void PageHistory::SetJudged(const BlockKey& key, bool guessed) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  found->second.record.judged = true;
  found->second.record.guessed = guessed;
}

}  // namespace divisi
