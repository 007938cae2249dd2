// What is remembered of pages beyond the time that a tier holds them: how often, when and by what
// request each was used. An entry is some hundred bytes beside a page's megabytes, so many more
// pages are remembered than held; the one used longest ago is forgotten first.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>

#include "divisi/kv/block_key.h"
#include "divisi/kv/write_admission.h"

namespace divisi {

// A prefix of one page is a preamble that all share; it says nothing about a conversation.
inline constexpr int64_t kLeastReused = 2;

struct PageRecord {
  int64_t last_use = 0;  // Number of the request, counted from 1.
  int64_t position = 0;  // Pages before it in its chain.
  PageTraits traits;
  bool judged = false;   // For the disk, since its last use: once is enough.
  bool guessed = false;  // By its chance, not because a request waited for it.
};

class PageHistory {
 public:
  explicit PageHistory(int64_t most_pages) : most_pages_(most_pages) {}

  // A request uses a chain, from its first page; its number is requests() from here on.
  // came_back(traits) is called for each page that had been judged by its chance, with the traits
  // of then.
  template <typename CameBack>
  void Used(std::span<const BlockKey> chain, const CameBack& came_back);

  // Known when the request has ended. Requires: the chain was Used.
  void Ended(std::span<const BlockKey> chain, int64_t answer_tokens, SessionState session);

  // What is remembered, or a page that the latest request used first.
  PageRecord Of(const BlockKey& key) const;
  void SetJudged(const BlockKey& key, bool guessed);

  int64_t requests() const { return requests_; }
  int64_t size() const { return static_cast<int64_t>(entries_.size()); }

 private:
  struct Entry {
    PageRecord record;
    std::list<BlockKey>::iterator place;
  };
  Entry& Touch(const BlockKey& key);
  int64_t KnownPrefix(std::span<const BlockKey> chain) const;

  int64_t most_pages_;
  int64_t requests_ = 0;
  std::list<BlockKey> by_use_;  // Oldest first.
  std::unordered_map<BlockKey, Entry, BlockKeyHash> entries_;
};

template <typename CameBack>
void PageHistory::Used(std::span<const BlockKey> chain, const CameBack& came_back) {
  ++requests_;
  const int64_t reused = KnownPrefix(chain);
  for (size_t i = 0; i < chain.size(); ++i) {
    PageRecord& record = Touch(chain[i]).record;
    if (record.guessed) came_back(record.traits);
    const int64_t uses = record.last_use == 0 ? 1 : record.traits.uses + 1;
    record.judged = record.guessed = false;
    record.last_use = requests_;
    record.position = static_cast<int64_t>(i);
    record.traits = {
        .uses = uses, .reused_pages = reused, .continues = uses == 1 && reused >= kLeastReused};
  }
}

}  // namespace divisi
