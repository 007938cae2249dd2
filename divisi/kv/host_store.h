// The host tier: pages in this process's memory, in slots of one size, so that room is never
// fragmented and a page costs no allocation.
//
// A slot is free, being written (by one Put, unseen), published under its key, or removed and kept
// for the readers it still has. Each layer's sum is made while the layer is copied in and checked
// as it is copied out: what overwrites the arena by mistake is found here, not in an answer.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "divisi/core/huge_memory.h"
#include "divisi/kv/page_store.h"

namespace divisi {

struct HostStoreStats {
  int64_t slots = 0;
  int64_t pages = 0;    // Findable.
  int64_t removed = 0;  // Kept for their readers.
  int64_t slot_bytes = 0;
  // Since the start.
  int64_t puts = 0;     // That wrote.
  int64_t refused = 0;  // For lack of a slot.
  int64_t damaged = 0;  // Pages that failed their sum, and were dropped.
};

class HostStore final : public PageStore {
 public:
  // As many pages of `shape` as fit into `budget`; none is fine, and refuses every Put.
  // Errors: kInvalidArgument for a shape that no page has, kResourceExhausted where the system
  // refuses the memory.
  static Result<std::unique_ptr<HostStore>> Create(const PageShape& shape, Bytes budget);
  // Requires: no reader lives.
  ~HostStore() override;

  Result<std::unique_ptr<PageReader>> Open(const BlockKey& key) override;
  Result<void> Put(const PageHeader& header, std::span<const std::byte> payload) override;
  void Remove(const BlockKey& key) override;
  bool in_memory() const override { return true; }

  bool Has(const BlockKey& key) const;
  // Of a page as an object (page_object.h).
  divisi::Bytes object_size() const;
  // The page as an object, each layer checked.
  // Errors: those of Open and PageReader::ReadLayers.  Requires: to.size() == object_size().
  Result<void> ReadObject(const BlockKey& key, std::span<std::byte> to);

  HostStoreStats stats() const;
  // The published bytes of a page; empty where it is not there. For tests, which damage them.
  std::span<std::byte> BytesOf(const BlockKey& key);

 private:
  friend class HostReader;
  struct Slot {
    PageHead head;
    int64_t readers = 0;
    bool published = false;
  };

  HostStore(const PageShape& shape, HugeMemory memory, int64_t slots);
  std::span<std::byte> Bytes(int64_t slot);
  void Unpublish(int64_t slot);  // Requires the lock.
  void Damaged(int64_t slot);    // By a reader of it.
  void EndReading(int64_t slot);

  const PageShape shape_;
  const int64_t slot_bytes_;
  HugeMemory memory_;

  mutable std::mutex mutex_;
  // Guarded by mutex_; a published slot's head and bytes don't change, and are read without it.
  std::vector<Slot> slots_;
  std::vector<int64_t> free_;  // The last in is the first out: it is the warmest in memory.
  std::unordered_map<BlockKey, int64_t, BlockKeyHash> by_key_;
  HostStoreStats stats_;
};

}  // namespace divisi
