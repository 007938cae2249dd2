// What the requests in the queue will use: for each page the first of them that needs it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "divisi/core/ids.h"
#include "divisi/kv/block_key.h"

namespace divisi {

class UpcomingUses {
 public:
  // At most `most_requests` are looked at; those behind them are as if they were not there.
  explicit UpcomingUses(int64_t most_requests) : most_requests_(most_requests) {}

  // The request joins the queue's end. keys: its pages, in order of its prompt. Its place; none,
  // and no change, when it is there already or the look-ahead is full.
  std::optional<int64_t> Expect(RequestId request, std::span<const BlockKey> keys);

  // It was started or given up. The pages that it waited for; empty when it was not there.
  std::vector<BlockKey> Forget(RequestId request);

  // The place of the first request that needs the page; a smaller one is served sooner. None: no
  // request in the queue does.
  std::optional<int64_t> NextUse(const BlockKey& key) const;

  bool Expects(RequestId request) const { return requests_.contains(request); }
  int64_t requests() const { return static_cast<int64_t>(requests_.size()); }
  int64_t pages() const { return static_cast<int64_t>(places_.size()); }  // Distinct ones.

 private:
  struct Waiting {
    int64_t place = 0;
    std::vector<BlockKey> keys;
  };
  int64_t most_requests_;
  int64_t next_place_ = 0;
  std::unordered_map<RequestId, Waiting> requests_;
  std::unordered_map<BlockKey, std::set<int64_t>, BlockKeyHash> places_;  // Never iterated.
};

}  // namespace divisi
