#include "divisi/kv/remote_hub.h"

#include <utility>

namespace divisi {

Result<std::shared_ptr<RemoteHub>> RemoteHub::Create(Bytes memory, const Make& make) {
  ASSIGN_OR_RETURN(HugeMemory reserved, HugeMemory::Reserve(memory, "pages of the remote pool"));
  std::shared_ptr<RemoteHub> hub(new RemoteHub(std::move(reserved)));
  ASSIGN_OR_RETURN(auto pages,
                   make(hub->memory(), hub->clock_, [raw = hub.get()] { raw->Pump(); }));
  const std::lock_guard lock(hub->mutex_);
  hub->pages_ = std::move(pages);
  hub->gets_parts_ = hub->pages_->gets_parts();
  return hub;
}

RemoteHub::~RemoteHub() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  pages_.reset();
}

template <typename Begin>
void RemoteHub::Call(Sink sink, const Begin& begin) {
  auto shared = std::make_shared<Sink>(std::move(sink));
  const std::lock_guard lock(mutex_);
  sinks_.emplace(begin(*pages_), std::move(shared));
}

void RemoteHub::Get(const BlockKey& key, std::span<std::byte> to, Seconds deadline, Sink sink) {
  Call(std::move(sink), [&](RemotePages& pages) { return pages.Get(key, to, deadline); });
}

void RemoteHub::GetPart(const BlockKey& key, Bytes skip, std::span<std::byte> to, Seconds deadline,
                        Sink sink) {
  Call(std::move(sink), [&](RemotePages& pages) { return pages.GetPart(key, skip, to, deadline); });
}

void RemoteHub::Put(const BlockKey& key, std::span<const std::byte> object, Seconds deadline,
                    Sink sink) {
  Call(std::move(sink), [&](RemotePages& pages) { return pages.Put(key, object, deadline); });
}

void RemoteHub::Has(std::vector<BlockKey> keys, Seconds deadline, Sink sink) {
  Call(std::move(sink), [&](RemotePages& pages) { return pages.Has(std::move(keys), deadline); });
}

void RemoteHub::Remove(std::vector<BlockKey> keys, Seconds deadline) {
  Call([](const RemoteDone&) {},
       [&](RemotePages& pages) { return pages.Remove(std::move(keys), deadline); });
}

void RemoteHub::Direct(std::span<const BlockKey> keys, const std::string& peer) {
  const std::lock_guard lock(mutex_);
  pages_->Direct(keys, peer);
}

std::optional<uint64_t> RemoteHub::TargetOf(const BlockKey& key) const {
  const std::lock_guard lock(mutex_);
  return pages_->TargetOf(key);
}

std::vector<RemoteHealth> RemoteHub::health() const {
  const std::lock_guard lock(mutex_);
  return pages_->health();
}

void RemoteHub::Pump() {
  const std::lock_guard pumping(pumping_);
  std::vector<std::pair<std::shared_ptr<Sink>, RemoteDone>> ends;
  {
    const std::lock_guard lock(mutex_);
    if (ending_ || !pages_) return;  // Before the first call nothing ends.
    for (RemoteDone& done : pages_->Poll()) {
      const auto found = sinks_.find(done.call);
      if (found == sinks_.end()) continue;
      ends.emplace_back(found->second, std::move(done));
      if (ends.back().second.released) sinks_.erase(found);
    }
  }
  for (const auto& [sink, done] : ends) (*sink)(done);
}

}  // namespace divisi
