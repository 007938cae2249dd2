// The KV tiers of one process below its device pages: host memory, a directory on a disk, the
// remote pool; with the threads that move pages. Carries out what a PrefixLoader orders.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "divisi/core/clock.h"
#include "divisi/core/log.h"
#include "divisi/engine/prefix_loader.h"
#include "divisi/kv/disk_store.h"
#include "divisi/kv/host_store.h"
#include "divisi/kv/page_object.h"
#include "divisi/kv/remote_index.h"
#include "divisi/kv/remote_store.h"
#include "divisi/kv/tier_io.h"

namespace divisi {

struct TierDriverOptions {
  PageShape shape;
  BlockKey model;               // RootKey of the key space without salt
  std::span<std::byte> device;  // All device pages; outlives the tiers
  Bytes host;                   // 0: no such tier
  std::filesystem::path disk;   // Empty: no such tier
  Bytes disk_size;
  // What the disk is to bear: its rated writes a day of its whole size, for its rated life.
  double disk_writes_per_day = 1;
  DiskWrites disk_writes = DiskWrites::kAdmitted;
  std::shared_ptr<DiskCalls> disk_calls = std::make_shared<DiskCalls>();
  std::shared_ptr<RemoteHub> pool;  // None: no such tier. Its memory: RemotePageStore::MemoryFor
  // Other workers' host memory, as pool: MakeStoreClient with peers. None: it is not read.
  std::shared_ptr<RemoteHub> peers;
  std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>();
};

struct TierDriverStats {
  TierIoStats io;
  std::optional<HostStoreStats> host;
  std::optional<DiskStoreStats> disk;
  std::optional<RemoteStoreStats> pool, peers;
};

class TierDriver {
 public:
  // logger outlives this. Errors: those of HostStore::Create and DiskStore::Open.
  static Result<std::unique_ptr<TierDriver>> Open(TierDriverOptions options, Logger& logger);
  ~TierDriver();

  // wake: called from the tiers' threads when Carry has something to do; empty: nobody listens any
  // more, once this returns.
  void WakeBy(std::function<void()> wake);

  // Three quarters of the device pages may be taken by loads.
  PrefixLoaderOptions LoaderOptions() const;
  // What lies on the disk, told to a loader that begins.
  void Restore(PrefixLoader& loader);
  // Results to the loader, its orders to the threads. per_token: of a prompt, as measured now.
  // What the loader says of its pages is the caller's to take.
  void Carry(PrefixLoader& loader, Seconds per_token, Seconds now);
  TierDriverStats stats() const;
  // For others to read; null without that tier.
  std::shared_ptr<HostStore> host() const;

 private:
  struct State;
  explicit TierDriver(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace divisi
