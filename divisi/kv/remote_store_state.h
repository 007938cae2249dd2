// What a RemotePageStore shares with the ends of its calls.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "divisi/kv/page_quarantine.h"
#include "divisi/kv/remote_store.h"
#include "divisi/kv/remote_targets.h"

namespace divisi {

// A page as one node or peer has it: that it is damaged there says nothing of others.
inline BlockKey PageAt(const BlockKey& key, uint64_t target) {
  BlockKey name = key;
  for (size_t i = 0; i < sizeof target; ++i) {
    name.bytes[i] ^= static_cast<uint8_t>(target >> (8 * i));
  }
  return name;
}

// The pool ends each call in its time; a wait is this much longer, for busy machines.
inline constexpr Seconds kRemoteSlack{1};

struct RemotePageStore::State {
  // free --BeginGet--> under way --ended--> there --claimed and read, or not wanted--> free, once
  // nothing lands any more.
  struct Buffer {
    BlockKey key;
    uint64_t target = 0;
    Part part;
    bool under_way = false;  // The get has not ended.
    bool released = true;    // Nothing lands any more.
    bool there = false;      // It ended well, and is of use.
    bool claimed = false;    // By who opens it or reads it.
    bool wanted = false;     // A hint: somebody will claim it.
    uint64_t begun = 0;
    Bytes length;
    std::optional<Error> error;

    bool Free() const { return !under_way && released && !claimed && !there; }
  };

  struct PutCall {
    BlockKey key;
    uint64_t target = 0;
    Bytes length;
  };

  explicit State(const RemoteStoreOptions& options)
      : targets(options.first_pause, options.most_pause),
        bad(static_cast<int64_t>(options.most_bad)) {}

  void GetEnded(size_t index, const RemoteDone& done, Seconds now);
  Result<void> PutEnded(const PutCall& call, const RemoteDone& done, Seconds now);
  void CountLocked(const RemoteDone& done, const Buffer& buffer, Seconds now);
  std::optional<size_t> HintedLocked(const BlockKey& key, const Part& part, uint64_t target) const;
  // For a while, or until something changes. Errors: kCancelled, kDeadlineExceeded.
  Result<void> WaitLocked(std::unique_lock<std::mutex>& lock, const Wait& wait, Seconds now);
  // Whether hints may take one more buffer for a target that is one of several.
  bool HasShareLocked(uint64_t target) const;
  std::optional<size_t> FreeLocked() const;
  bool DropOldestLocked();

  mutable std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex.
  std::vector<Buffer> buffers;
  size_t puts_open = 0;
  int waiting_for_buffer = 0;
  std::vector<BlockKey> lost_copies;
  uint64_t gets_begun = 0;
  RemoteTargets targets;
  PageQuarantine bad;  // By PageAt
  RemoteStoreStats stats;
};

}  // namespace divisi
