#include "divisi/kv/host_store.h"

#include <algorithm>

namespace divisi {
namespace {

// Slots begin at cache lines.
constexpr int64_t kAlignment = 64;

}  // namespace

// Holds one reader's reference to a slot.
class HostReader final : public PageReader {
 public:
  HostReader(HostStore& store, int64_t slot, const PageHead& head)
      : store_(store), slot_(slot), head_(head) {}
  HostReader(const HostReader&) = delete;
  HostReader& operator=(const HostReader&) = delete;
  ~HostReader() override { store_.EndReading(slot_); }

  const PageHeader& header() const override { return head_.header; }
  const PageHead& head() const { return head_; }

  Result<void> ReadLayers(int first, int count, std::span<std::byte> to) override {
    const auto layer = static_cast<size_t>(head_.header.shape.layer_bytes);
    CHECK(first >= 0 && count >= 0 && first + count <= head_.header.shape.layers &&
          to.size() == static_cast<size_t>(count) * layer);
    const auto bytes = store_.Bytes(slot_);
    for (int i = first; i < first + count; ++i, to = to.subspan(layer)) {
      const auto from = bytes.subspan(static_cast<size_t>(i) * layer, layer);
      if (CopyWithSum(to.first(layer), from) == head_.sums[static_cast<size_t>(i)]) continue;
      store_.Damaged(slot_);
      return Error{Code::kDataLoss, Format("host memory: layer {} of page {} is not what was put",
                                           i, head_.header.key.Hex())};
    }
    return {};
  }

 private:
  HostStore& store_;
  const int64_t slot_;
  const PageHead& head_;  // Of the slot, which keeps it as long as it has a reader.
};

Result<std::unique_ptr<HostStore>> HostStore::Create(const PageShape& shape, divisi::Bytes budget) {
  RETURN_IF_ERROR(CheckEncodable({.shape = shape}));
  const int64_t slot_bytes = (shape.PayloadBytes() + kAlignment - 1) / kAlignment * kAlignment;
  const int64_t slots = std::max<int64_t>(budget.value, 0) / slot_bytes;
  ASSIGN_OR_RETURN(HugeMemory memory,
                   HugeMemory::Reserve(divisi::Bytes(slots * slot_bytes), "the host tier of KV"));
  return std::unique_ptr<HostStore>(new HostStore(shape, std::move(memory), slots));
}

HostStore::HostStore(const PageShape& shape, HugeMemory memory, int64_t slots)
    : shape_(shape),
      slot_bytes_((shape.PayloadBytes() + kAlignment - 1) / kAlignment * kAlignment),
      memory_(std::move(memory)),
      slots_(static_cast<size_t>(slots)) {
  stats_.slots = slots;
  stats_.slot_bytes = slot_bytes_;
  free_.reserve(slots_.size());
  for (int64_t slot = slots - 1; slot >= 0; --slot) free_.push_back(slot);
}

HostStore::~HostStore() {
  for (const Slot& slot : slots_) CHECK(slot.readers == 0, "a reader outlives its store");
}

std::span<std::byte> HostStore::Bytes(int64_t slot) {
  return {memory_.data() + slot * slot_bytes_, static_cast<size_t>(shape_.PayloadBytes())};
}

Result<std::unique_ptr<PageReader>> HostStore::Open(const BlockKey& key) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    return Error{Code::kNotFound, Format("host memory: no page {}", key.Hex())};
  }
  Slot& slot = slots_[static_cast<size_t>(found->second)];
  ++slot.readers;
  return std::unique_ptr<PageReader>(new HostReader(*this, found->second, slot.head));
}

bool HostStore::Has(const BlockKey& key) const {
  const std::lock_guard lock(mutex_);
  return by_key_.contains(key);
}

divisi::Bytes HostStore::object_size() const {
  return divisi::Bytes(static_cast<int64_t>(kPageHeadBytes) + shape_.PayloadBytes());
}

Result<void> HostStore::ReadObject(const BlockKey& key, std::span<std::byte> to) {
  CHECK(to.size() == static_cast<size_t>(object_size().value));
  ASSIGN_OR_RETURN(const auto reader, Open(key));
  const auto head = EncodePageHead(static_cast<const HostReader&>(*reader).head());
  std::ranges::copy(head, to.begin());
  return reader->ReadLayers(0, shape_.layers, to.subspan(kPageHeadBytes));
}

Result<void> HostStore::Put(const PageHeader& header, std::span<const std::byte> payload) {
  if (header.shape != shape_) {
    return Error{Code::kInvalidArgument, Format("host memory: page {} has another shape than its "
                                                "slots",
                                                header.key.Hex())};
  }
  CHECK(payload.size() == static_cast<size_t>(shape_.PayloadBytes()));
  int64_t at;
  {
    const std::lock_guard lock(mutex_);
    if (by_key_.contains(header.key)) return {};
    if (free_.empty()) {
      ++stats_.refused;
      return Error{Code::kResourceExhausted,
                   Format("host memory: all {} pages are taken", stats_.slots)};
    }
    at = free_.back();
    free_.pop_back();
  }
  Slot& slot = slots_[static_cast<size_t>(at)];  // This call's own until it is published.
  slot.head.header = header;
  slot.head.sums.clear();
  const auto layer = static_cast<size_t>(shape_.layer_bytes);
  const auto to = Bytes(at);
  for (size_t begin = 0; begin < payload.size(); begin += layer) {
    slot.head.sums.push_back(CopyWithSum(to.subspan(begin, layer), payload.subspan(begin, layer)));
  }
  const std::lock_guard lock(mutex_);
  if (!by_key_.try_emplace(header.key, at).second) {
    free_.push_back(at);  // Another Put of the same page was faster.
    return {};
  }
  slot.published = true;
  ++stats_.puts;
  return {};
}

void HostStore::Remove(const BlockKey& key) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) Unpublish(found->second);
}

void HostStore::Unpublish(int64_t at) {
  Slot& slot = slots_[static_cast<size_t>(at)];
  by_key_.erase(slot.head.header.key);
  slot.published = false;
  if (slot.readers == 0) {
    free_.push_back(at);
  } else {
    ++stats_.removed;
  }
}

void HostStore::Damaged(int64_t at) {
  const std::lock_guard lock(mutex_);
  if (!slots_[static_cast<size_t>(at)].published) return;  // Another reader saw it first.
  ++stats_.damaged;
  Unpublish(at);
}

void HostStore::EndReading(int64_t at) {
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_[static_cast<size_t>(at)];
  if (--slot.readers > 0 || slot.published) return;
  free_.push_back(at);
  --stats_.removed;
}

HostStoreStats HostStore::stats() const {
  const std::lock_guard lock(mutex_);
  HostStoreStats stats = stats_;
  stats.pages = static_cast<int64_t>(by_key_.size());
  return stats;
}

std::span<std::byte> HostStore::BytesOf(const BlockKey& key) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? std::span<std::byte>() : Bytes(found->second);
}

}  // namespace divisi
