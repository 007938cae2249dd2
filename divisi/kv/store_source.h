// Where a node of the store protocol (store_node.h) has objects from that nobody put there: a
// worker's host memory, which other workers read. Such a node is read only.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "divisi/core/result.h"
#include "divisi/core/units.h"
#include "divisi/kv/host_store.h"

namespace divisi {

// Called from the node's thread.
class StoreSource {
 public:
  virtual ~StoreSource() = default;
  // Bytes of each object.
  virtual Bytes object_size() const = 0;
  virtual bool Has(const BlockKey& key) const = 0;
  // The whole object, checked. Errors: those of PageStore::Open and PageReader::ReadLayers.
  // Requires: to.size() == object_size().
  virtual Result<void> Read(const BlockKey& key, std::span<std::byte> to) = 0;
};

// The host tier's pages. One that is being read stays as it is, and so do its readers' copies:
// nobody waits for it, and what damaged it is found.
class HostSource final : public StoreSource {
 public:
  explicit HostSource(std::shared_ptr<HostStore> store) : store_(std::move(store)) {}
  Bytes object_size() const override { return store_->object_size(); }
  bool Has(const BlockKey& key) const override { return store_->Has(key); }
  Result<void> Read(const BlockKey& key, std::span<std::byte> to) override {
    return store_->ReadObject(key, to);
  }

 private:
  const std::shared_ptr<HostStore> store_;
};

}  // namespace divisi
