// The remote pool as a worker sees it: page objects by key, kept by other processes. Behind it are
// nodes of `divisi store` (store_pool.h) or a Redis server (redis_store.h).
//
// Calls return at once and end by Poll, each exactly once, at its deadline at the latest. An object
// is what page_object.h says, whole; the pool is not trusted: who gets one checks it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "divisi/core/result.h"
#include "divisi/core/units.h"
#include "divisi/kv/block_key.h"

namespace divisi {

// How a call ended, or, where its memory was not free then, that it is now.
struct RemoteDone {
  uint64_t call = 0;
  bool ended = true;  // False: only `released` is news.
  // None: it did. kNotFound: no such object. kDeadlineExceeded, kUnavailable (no node that should
  // have it answers), kOutOfRange (larger than its place), kResourceExhausted (the pool has no
  // room), kDataLoss (the pool found the object bad).
  std::optional<Error> error;
  Bytes length;            // Of a get: of the whole object.
  bool copy_lost = false;  // Of a get that ended well: a node that should have it, too, does not.
  std::vector<bool> have;  // Of a Has, in the order of its keys.
  int64_t count = 0;       // Of a Remove or a Clear: how many objects went.
  // False: late bytes may still land in the memory of the call (Get), or it is still read (Put);
  // one more RemoteDone follows, in bounded time.
  bool released = true;
};

// What a router weighs.
struct RemoteHealth {
  std::string address;
  bool ready = false;
  std::string reason;    // Where not ready: what happened last.
  BytesPerSecond rate;   // Of gets, while some were under way; 0 before the first.
  Seconds latency;       // Of a question and its answer; 0 before the first.
  int64_t failures = 0;  // Connections that ended, or could not be made.
  Bytes under_way;
};

class RemotePages {
 public:
  virtual ~RemotePages() = default;

  // The deadlines count from now. Each returns the call's number.
  // to: where the object goes, in the memory that the pool was made with; the caller's again when
  // the call is released.
  virtual uint64_t Get(const BlockKey& key, std::span<std::byte> to, Seconds deadline) = 0;
  // Bytes [skip, skip + to.size()) of the object alone; kOutOfRange where it has no such part.
  // Requires: gets_parts().
  virtual uint64_t GetPart(const BlockKey& key, Bytes skip, std::span<std::byte> to,
                           Seconds deadline) {
    (void)skip;
    return Get(key, to, deadline);
  }
  virtual bool gets_parts() const { return false; }
  // object: unchanged until released. An object that is there already is left: they are immutable.
  virtual uint64_t Put(const BlockKey& key, std::span<const std::byte> object,
                       Seconds deadline) = 0;
  // Requires: at most kMaxStoreKeys keys.
  virtual uint64_t Has(std::vector<BlockKey> keys, Seconds deadline) = 0;
  virtual uint64_t Remove(std::vector<BlockKey> keys, Seconds deadline) = 0;
  virtual uint64_t Clear(Seconds deadline) = 0;

  // Whom calls of the key go to first, where these may be several: equal numbers, the same one.
  // What is late or away there says nothing of others. None: all calls go one way. Safe from any
  // thread.
  virtual std::optional<uint64_t> TargetOf(const BlockKey& key) const {
    (void)key;
    return std::nullopt;
  }

  // Of other workers' memory: these keys' gets go to that one, HOST:PORT, from now on. A pool knows
  // itself where its objects are.
  virtual void Direct(std::span<const BlockKey> keys, const std::string& peer) {
    (void)keys;
    (void)peer;
  }

  // What ended since the last call.
  virtual std::vector<RemoteDone> Poll() = 0;
  virtual std::vector<RemoteHealth> health() const = 0;
};

}  // namespace divisi
