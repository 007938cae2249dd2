// A Transport as the remote pool's two ends use it: its events one by one, and a fence after which
// nothing of the connections before it is heard any more.
#pragma once

#include <deque>
#include <optional>

#include "divisi/core/units.h"
#include "divisi/net/transport.h"

namespace divisi {

// A fence that is not there yet is asked for this often: ends of connections take some polls.
inline constexpr Seconds kFenceAgain{0.002};

class StoreTransport {
 public:
  explicit StoreTransport(Transport& transport) : transport_(transport) {}

  Transport& operator*() const { return transport_; }
  Transport* operator->() const { return &transport_; }

  // Ends all connections with the peer. True: no write of it lands any more, ours to it are
  // reported, and that its connection was lost is not. False: some may still land; ask again.
  bool Fence(NodeId peer) {
    const bool fenced = transport_.Disconnect(peer).ok();
    Take();
    if (!fenced) return false;
    std::erase_if(events_, [peer](const TransportEvent& event) {
      return event.peer == peer && event.kind != TransportEvent::Kind::kWritten;
    });
    return true;
  }

  // Looks for more where none is left. Empty: nothing has happened.
  std::optional<TransportEvent> Next() {
    if (events_.empty()) Take();
    if (events_.empty()) return std::nullopt;
    TransportEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  // Whether Next has something without looking.
  bool pending() const { return !events_.empty(); }

 private:
  void Take() {
    for (TransportEvent& event : transport_.Poll()) events_.push_back(std::move(event));
  }

  Transport& transport_;
  std::deque<TransportEvent> events_;
};

}  // namespace divisi
