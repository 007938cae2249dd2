#include "divisi/kv/trace_replay.h"

#include <algorithm>
#include <cstring>

namespace divisi {
namespace {

BlockKey KeyOf(uint64_t block) {
  BlockKey key;
  std::memcpy(key.bytes.data(), &block, sizeof block);
  return key;
}

EvictionPolicy PolicyOf(ReplayPolicy policy) {
  if (policy == ReplayPolicy::kLru) return EvictionPolicy::kLru;
  return policy == ReplayPolicy::kLfu ? EvictionPolicy::kLfu : EvictionPolicy::kQueue;
}

class Replay {
 public:
  Replay(const std::vector<TraceRequest>& requests, const ReplayOptions& options)
      : requests_(requests),
        options_(options),
        lookahead_(options.policy == ReplayPolicy::kOptimum ? static_cast<int64_t>(requests.size())
                                                            : options.lookahead),
        tiers_({.host_pages = options.host_blocks,
                .disk_pages = options.disk_blocks,
                .policy = PolicyOf(options.policy),
                .disk_writes = options.disk_writes,
                .budget = options.budget,
                .lookahead = lookahead_ + 1}) {}

  ReplayResult Run() {
    const bool knows_queue =
        options_.policy == ReplayPolicy::kQueue || options_.policy == ReplayPolicy::kOptimum;
    for (size_t i = 0; i < requests_.size(); ++i) {
      result_.accesses += static_cast<int64_t>(requests_[i].blocks.size());
      if (knows_queue) {
        ShowQueue(i);
        ServeTogether(i);
      } else {
        ServeOneByOne(requests_[i]);
      }
    }
    result_.tiers = tiers_.stats();
    return result_;
  }

 private:
  // The queue behind request `first`, which is served.
  void ShowQueue(size_t first) {
    const Seconds now = requests_[first].at;
    const size_t end = std::min(requests_.size(), first + static_cast<size_t>(lookahead_) + 1);
    for (; shown_ < end; ++shown_) {
      tiers_.Expect(shown_, KeysOf(requests_[shown_]), now);
    }
    tiers_.Forget(first, now);
    CarryOut(now);
  }

  std::vector<BlockKey> KeysOf(const TraceRequest& request) const {
    std::vector<BlockKey> keys;
    for (const uint64_t block : request.blocks) keys.push_back(KeyOf(block));
    const bool all = request.last_is_full || options_.policy != ReplayPolicy::kQueue;
    if (!all && !keys.empty()) keys.pop_back();
    return keys;
  }

  void ServeTogether(size_t index) {
    const TraceRequest& request = requests_[index];
    const std::vector<BlockKey> keys = KeysOf(request);
    std::vector<std::vector<Tier>> found;
    bool whole = true;
    for (size_t i = 0; i < keys.size(); ++i) {
      found.push_back(tiers_.Find({{keys[i]}}, 0));
      whole = Count(found.back(), whole);
      if (!found.back().empty()) tiers_.Pin(keys[i], found.back()[0]);
    }
    tiers_.Used(keys);
    tiers_.Ended(keys, request.answer_tokens, SessionState::kUnknown);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (found[i].empty() || found[i][0] != Tier::kHost) Compute(keys, i, request.at);
    }
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!found[i].empty()) tiers_.Unpin(keys[i], found[i][0]);
    }
    CarryOut(request.at);
  }

  void ServeOneByOne(const TraceRequest& request) {
    const std::vector<BlockKey> keys = KeysOf(request);
    bool whole = true;
    for (size_t i = 0; i < keys.size(); ++i) {
      const std::vector<Tier> found = tiers_.Find({{keys[i]}}, 0);
      whole = Count(found, whole);
      tiers_.Used({{keys[i]}});
      tiers_.Ended({{keys[i]}}, request.answer_tokens, SessionState::kUnknown);
      if (found.empty() || found[0] != Tier::kHost) Compute(keys, i, request.at);
    }
  }

  // Whether the blocks up to this one were all found.
  bool Count(const std::vector<Tier>& found, bool whole) {
    if (found.empty()) return false;
    ++(found[0] == Tier::kHost ? result_.host_hits : result_.disk_hits);
    result_.prefix_hits += whole;
    return whole;
  }

  void Compute(const std::vector<BlockKey>& keys, size_t i, Seconds now) {
    const PageName name{.key = keys[i],
                        .parent = i == 0 ? BlockKey() : keys[i - 1],
                        .position = static_cast<int64_t>(i)};
    tiers_.Complete(name, 0, now);
    CarryOut(now);
  }

  void CarryOut(Seconds now) {
    for (auto actions = tiers_.TakeActions(); !actions.empty(); actions = tiers_.TakeActions()) {
      for (const TierAction& action : actions) {
        if (action.kind == TierAction::Kind::kCopy) tiers_.Done(action.id, true, now);
      }
    }
    tiers_.TakeEvents();
  }

  const std::vector<TraceRequest>& requests_;
  const ReplayOptions& options_;
  int64_t lookahead_;
  TierManager tiers_;
  size_t shown_ = 0;
  ReplayResult result_;
};

}  // namespace

ReplayResult ReplayTrace(const std::vector<TraceRequest>& requests, const ReplayOptions& options) {
  return Replay(requests, options).Run();
}

}  // namespace divisi
