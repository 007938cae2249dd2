#include "divisi/net/memory_link.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace divisi {
namespace {

std::string Copy(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

MemoryLink::MemoryLink(std::shared_ptr<MemoryFabric> fabric, NodeId node, std::string address)
    : fabric_(std::move(fabric)),
      node_(node),
      address_(std::move(address)),
      fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  CHECK(fd_ >= 0, "no eventfd");
  fabric_->listeners[address_] = this;
  fabric_->nodes[node_] = this;
}

MemoryLink::~MemoryLink() {
  Die();
  close(fd_);
}

void MemoryLink::Die() {
  if (dead_) return;
  while (!ends_.empty()) {
    const LinkId id = ends_.begin()->first;
    Close(id, "its process ended");
    ends_.erase(id);
  }
  dead_ = true;
  inbox_.clear();
  fabric_->listeners.erase(address_);
  fabric_->nodes.erase(node_);
}

MemoryLink* MemoryLink::Reach(const End& end) const {
  if (!end.peer || fabric_->cut.contains({node_, *end.peer})) return nullptr;
  const auto found = fabric_->nodes.find(*end.peer);
  return found == fabric_->nodes.end() ? nullptr : found->second;
}

void MemoryLink::Push(Seconds at, Arrival arrival) {
  inbox_.emplace(at, std::move(arrival));
  Wake();
}

void MemoryLink::Wake() {
  const uint64_t one = 1;
  (void)!write(fd_, &one, sizeof(one));  // Full: it is readable already.
}

Result<LinkId> MemoryLink::Dial(const std::string& address) {
  if (address.empty()) return Error{Code::kInvalidArgument, "an empty address"};
  const LinkId id = ++last_id_;
  const Seconds now = fabric_->clock.Now();
  const Seconds arrives = now + fabric_->options.latency;
  ends_[id] = {.free_at = now, .arrives_at = arrives};
  const auto found = fabric_->listeners.find(address);
  if (found == fabric_->listeners.end()) {
    Push(arrives, {.event = {.kind = LinkEvent::Kind::kClosed,
                             .link = id,
                             .reason = "nobody listens at " + address}});
    return id;
  }
  MemoryLink* const peer = found->second;
  if (fabric_->cut.contains({node_, peer->node_})) return id;  // Silence.
  const LinkId peer_id = ++peer->last_id_;
  ends_[id].peer = peer->node_;
  ends_[id].peer_id = peer_id;
  peer->ends_[peer_id] = {node_, id, now, now};
  peer->Push(arrives, {.event = {.kind = LinkEvent::Kind::kAccepted, .link = peer_id}});
  return id;
}

void MemoryLink::Send(LinkId id, std::string header, std::span<const std::byte> body,
                      uint64_t token) {
  const Seconds now = fabric_->clock.Now();
  LinkEvent sent{.kind = LinkEvent::Kind::kSent, .link = id, .token = token};
  const auto found = ends_.find(id);
  if (found == ends_.end()) {
    sent.ok = false;
    return Push(now, {.event = sent});
  }
  End& end = found->second;
  const MemoryNetworkOptions& options = fabric_->options;
  const Seconds began = std::max(now, end.free_at);
  end.free_at =
      began + Bytes(static_cast<int64_t>(body.size() + header.size())) / options.bandwidth;
  Push(end.free_at, {.event = sent});
  MemoryLink* const peer = Reach(end);
  if (peer == nullptr) return;
  end.arrives_at = std::max(
      end.arrives_at, end.free_at + options.latency + options.jitter * fabric_->random.Uniform());
  Arrival arrival{.event = {.link = end.peer_id, .bytes = body.size(), .header = std::move(header)},
                  .body = Copy(body),
                  .began = began};
  const bool repeated = body.empty() && token == 0 && fabric_->random.Chance(options.repeat_chance);
  if (repeated) peer->Push(end.arrives_at, arrival);
  peer->Push(end.arrives_at, std::move(arrival));
  if (fabric_->random.Chance(options.break_chance)) Close(id, "the connection broke");
}

void MemoryLink::Close(LinkId id, const std::string& reason) {
  const auto found = ends_.find(id);
  if (found == ends_.end()) return;
  const Seconds now = fabric_->clock.Now();
  const End end = found->second;
  // Nothing lands here any more, and every send is given back before the connection's end.
  std::erase_if(inbox_, [id](const auto& entry) { return entry.second.event.link == id; });
  ends_.erase(found);
  Push(now, {.event = {.kind = LinkEvent::Kind::kClosed, .link = id, .reason = reason}});
  if (MemoryLink* const peer = Reach(end)) peer->CloseAfterDelivery(end.peer_id, now, reason);
}

std::vector<std::pair<Seconds, MemoryLink::Arrival>> MemoryLink::TakeMessages(LinkId id) {
  std::vector<std::pair<Seconds, Arrival>> taken;
  for (auto it = inbox_.begin(); it != inbox_.end();) {
    const LinkEvent& event = it->second.event;
    if (event.link != id || event.kind != LinkEvent::Kind::kMessage) {
      ++it;
      continue;
    }
    taken.emplace_back(it->first, std::move(it->second));
    it = inbox_.erase(it);
  }
  return taken;
}

// The other side is gone: what was wholly on its way still comes, what was being sent comes in
// part, what waited is lost.
void MemoryLink::CloseAfterDelivery(LinkId id, Seconds now, const std::string& reason) {
  const auto found = ends_.find(id);
  if (found == ends_.end()) return;
  found->second.peer.reset();
  const Seconds late = fabric_->options.linger * fabric_->random.Uniform();
  Seconds last = now + fabric_->options.latency;
  for (auto& [at, arrival] : TakeMessages(id)) {
    if (arrival.began > now) continue;
    if (at > last && !arrival.body.empty()) {
      const double part = fabric_->random.Uniform();
      arrival.body.resize(static_cast<size_t>(part * static_cast<double>(arrival.body.size())));
      arrival.event.ok = false;
    }
    last = std::max(last, at + late);
    Push(at + late, std::move(arrival));
  }
  Push(last, {.event = {.kind = LinkEvent::Kind::kClosed, .link = id, .reason = reason}});
}

void MemoryLink::Deliver(Arrival arrival, const Place& place, std::vector<LinkEvent>& out) {
  LinkEvent& event = arrival.event;
  if (event.kind == LinkEvent::Kind::kMessage && event.bytes > 0) {
    std::byte* const to = place(event.link, event.header, event.bytes);
    if (to == nullptr) return;
    std::memcpy(to, arrival.body.data(), arrival.body.size());
  }
  if (event.kind == LinkEvent::Kind::kClosed) ends_.erase(event.link);
  out.push_back(std::move(event));
}

std::vector<LinkEvent> MemoryLink::Progress(const Place& place) {
  std::vector<LinkEvent> out;
  if (Silent()) return out;
  uint64_t count = 0;
  (void)!read(fd_, &count, sizeof(count));  // Empty: nothing new.
  const Seconds now = fabric_->clock.Now();
  while (!inbox_.empty() && inbox_.begin()->first <= now) {
    auto node = inbox_.extract(inbox_.begin());
    Deliver(std::move(node.mapped()), place, out);
  }
  return out;
}

bool MemoryLink::Arm() {
  if (Silent() || inbox_.empty()) return true;
  return inbox_.begin()->first > fabric_->clock.Now();
}

std::optional<Seconds> MemoryLink::NextDue() const {
  if (Silent() || inbox_.empty()) return std::nullopt;
  return inbox_.begin()->first;
}

}  // namespace divisi
