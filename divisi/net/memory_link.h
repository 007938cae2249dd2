// One process's end of a MemoryNetwork: the modelled Link.
#pragma once

#include <map>
#include <set>

#include "divisi/core/clock.h"
#include "divisi/core/random.h"
#include "divisi/net/link.h"
#include "divisi/net/memory_network.h"

namespace divisi {

class MemoryLink;

// What the ends share.
struct MemoryFabric {
  MemoryNetworkOptions options;
  const Clock& clock;
  Random random;
  std::map<std::string, MemoryLink*> listeners;
  std::map<NodeId, MemoryLink*> nodes;
  std::set<NodeId> stopped;
  std::set<std::pair<NodeId, NodeId>> cut;  // Both orders.
};

class MemoryLink final : public Link {
 public:
  MemoryLink(std::shared_ptr<MemoryFabric> fabric, NodeId node, std::string address);
  ~MemoryLink() override;

  const std::string& address() const override { return address_; }
  Result<void> Register(std::span<std::byte>) override { return {}; }
  Result<LinkId> Dial(const std::string& address) override;
  void Send(LinkId id, std::string header, std::span<const std::byte> body,
            uint64_t token) override;
  void Close(LinkId id, const std::string& reason) override;
  size_t open_links() const override { return ends_.size(); }
  std::vector<LinkEvent> Progress(const Place& place) override;
  bool Arm() override;
  int fd() const override { return fd_; }
  std::optional<Seconds> NextDue() const override;

  // Ends without a word.
  void Die();

 private:
  // This side of a connection.
  struct End {
    std::optional<NodeId> peer;  // By name: it may end unnoticed. Empty: gone, or never there.
    LinkId peer_id = 0;
    Seconds free_at;     // When this direction has sent what it was given.
    Seconds arrives_at;  // When the last of it arrives: messages don't overtake each other.
  };
  // What happens at this side at a time.
  struct Arrival {
    LinkEvent event;
    std::string body;
    Seconds began;  // To be sent.
  };

  // Empty where nothing reaches it: gone, or cut off.
  MemoryLink* Reach(const End& end) const;
  void Push(Seconds at, Arrival arrival);
  std::vector<std::pair<Seconds, Arrival>> TakeMessages(LinkId id);
  void Wake();
  void CloseAfterDelivery(LinkId id, Seconds now, const std::string& reason);
  void Deliver(Arrival arrival, const Place& place, std::vector<LinkEvent>& out);
  bool Silent() const { return dead_ || fabric_->stopped.contains(node_); }

  const std::shared_ptr<MemoryFabric> fabric_;  // With the network and the other ends.
  const NodeId node_;
  const std::string address_;
  int fd_ = -1;
  bool dead_ = false;
  LinkId last_id_ = 0;
  std::map<LinkId, End> ends_;
  std::multimap<Seconds, Arrival> inbox_;  // Of equal times, in order of arrival.
};

}  // namespace divisi
