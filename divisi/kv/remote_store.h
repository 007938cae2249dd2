// The remote pool as a tier: objects come into buffers that are registered with the network, are
// checked there, and copied out. A pool that gives parts (RemotePages::gets_parts) is asked by who
// reads layers for the head first, then for a few layers at a time, so that computing can follow.
//
// Opening and reading get; hints begin gets ahead, so that several are under way while one is
// copied. All waits are bounded: a get and a put end at their time, and a node or peer that was
// late is left alone for a while, longer each time, as is one that is away for puts. A buffer whose
// get was given up is not used again before the pool says that nothing lands there any more.
//
// An object that fails its check is removed from the pool and not opened again until it is put
// anew, or of another node or peer; after PageQuarantine::kMostRewrites of these it is not put any
// more.
#pragma once

#include <memory>

#include "divisi/core/units.h"
#include "divisi/kv/page_store.h"
#include "divisi/kv/remote_hub.h"

namespace divisi {

struct RemoteStoreOptions {
  PageShape shape;
  BlockKey model;
  Seconds get{1};  // Of one, from its beginning to its end.
  Seconds put{2};
  Bytes run{int64_t{256} << 10};  // Of a part: as many whole layers as fit, at least one.
  size_t most_puts = 8;           // Whose memory the pool still reads, given up ones too.
  Seconds first_pause{0.1};
  Seconds most_pause{5};
  size_t most_bad = 4096;  // Objects that are remembered for it.
};

struct RemoteStoreStats {
  int64_t gets = 0;      // Begun
  int64_t hits = 0;      // Of them: objects that came;
  int64_t misses = 0;    // that the pool did not have;
  int64_t late = 0;      // that were late;
  int64_t failed = 0;    // that ended otherwise.
  int64_t unwanted = 0;  // Of the hits: begun ahead, and not opened.
  int64_t bad = 0;       // Objects that failed a check
  int64_t puts = 0;      // Done
  int64_t puts_failed = 0;
  int64_t skipped =
      0;  // Gets and puts that were not tried, after late ones or for want of buffers.
  Bytes got, put;
  int64_t buffers = 0, buffers_used = 0;  // Now
  std::vector<RemoteHealth> health;
};

class RemotePageStore final : public PageStore {
 public:
  // Where pages of this shape can be in flight: as many as fit 64 MiB, 2 at least, 64 at most.
  static Bytes MemoryFor(const PageShape& shape);

  // All of the hub's memory is this store's.
  // Requires: a shape that a page can have, room for one object.
  RemotePageStore(std::shared_ptr<RemoteHub> hub, const RemoteStoreOptions& options);
  ~RemotePageStore() override;  // Requires: no reader lives.

  // Errors, beside PageStore's: kUnavailable where the pool is late, away, or was late just now.
  Result<std::unique_ptr<PageReader>> Open(const BlockKey& key) override;
  Result<std::unique_ptr<PageReader>> OpenWithin(const BlockKey& key,
                                                 const PageOpening& opening) override;
  Result<void> Put(const PageHeader& header, std::span<const std::byte> payload) override;
  void BeginPut(const PageHeader& header, std::span<const std::byte> payload,
                PutDone done) override;
  size_t most_puts() const override { return options_.most_puts; }
  PutTurn TurnOf(const BlockKey& key) const override;
  void Remove(const BlockKey& key) override;
  bool WillOpen(const BlockKey& key, PageUse use) override;
  void WontOpen(const BlockKey& key) override;
  bool staged() const override { return true; }
  bool whole() const override { return !hub_->gets_parts(); }

  // Pages that came, and of whose copies one is lost, since the last call; some may be left out.
  std::vector<BlockKey> TakeLostCopies();
  RemoteStoreStats stats() const;

 private:
  friend class WholeReader;
  friend class PartReader;
  struct State;
  // Of an object.
  struct Part {
    Bytes skip, length;
    friend bool operator==(const Part&, const Part&) = default;
  };
  Part Opening(PageUse use) const;
  Part Layers(int first, int count) const;
  // The most of one part.
  int run() const { return run_; }
  struct Wait {
    Seconds until;
    const Landing* landing = nullptr;
  };
  Wait Until(Seconds end, const Landing* landing) const;
  // Of the whole object, once the part is there.
  Result<Bytes> WaitFor(size_t buffer, const Wait& wait);
  // Of a claimed buffer.
  Error Failed(size_t buffer, const Error& error);
  Result<void> AdmitPut(const BlockKey& key, uint64_t target);
  bool Hint(const BlockKey& key, const Part& part);
  void Forget(const BlockKey& key, const Part& part);
  Result<size_t> Claim(const BlockKey& key, const Part& part, const Wait& wait);
  Result<PageHead> Check(const BlockKey& key, std::span<const std::byte> object,
                         Bytes length) const;
  Result<void> Copy(const PageHead& head, int first, size_t buffer, std::span<std::byte> to);
  Error Fail(size_t buffer, const Error& error);
  void BeginGet(size_t buffer);
  void EndReading(size_t buffer);
  std::span<std::byte> At(size_t buffer) const;

  const std::shared_ptr<RemoteHub> hub_;
  const RemoteStoreOptions options_;
  const int run_;
  const size_t buffer_bytes_;
  const std::shared_ptr<State> state_;  // Shared with sinks, which may come later.
};

}  // namespace divisi
