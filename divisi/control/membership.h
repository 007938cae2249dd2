// A worker's view of its cluster: the gateways that it is to be connected to, which connection
// carries a message, and which peers are gone. A pure state machine, a part of WorkerCore.
//
// Every gateway tells of every peer that it reaches, and vouches for it until it says otherwise or
// its connection here has ended for longer than kSilence. A peer is gone when a gateway says that
// its death is confirmed, or when none vouches and one doubts it, or none has known it for long (it
// died while the gateway that knew it was away, or was told dead while that was out of reach). It
// stays gone: its writes were barred. A gateway that presents it again has missed that, and is to
// be told.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "divisi/control/cluster_message.h"
#include "divisi/control/registry.h"
#include "divisi/core/units.h"

namespace divisi {

// Where a gateway's control port is.
struct GatewayAddress {
  std::string host;
  int port = 0;
  friend auto operator<=>(const GatewayAddress&, const GatewayAddress&) = default;
};

class Membership {
 public:
  struct Dial {
    LinkId link = 0;
    GatewayAddress address;
  };

  // Gateways that are given for good, and those that are announced now, by as many lives as are
  // there. One that is not given, and that every life has withdrawn, is left alone once its
  // connection has ended.
  void Expect(const std::vector<GatewayAddress>& addresses);
  void Announce(const GatewayAddress& address);
  void Withdraw(const GatewayAddress& address);
  size_t gateways() const { return slots_.size(); }

  // Connections to begin now; Connected or Ended answers each.
  std::vector<Dial> TakeDials(Seconds now);
  void Connected(LinkId link);
  // Whether that is news: not what the same address ended with last, unless it was joined since.
  bool Ended(LinkId link, const std::string& why, Seconds now);
  void Welcomed(LinkId link, NodeId gateway);
  // Anything that came from a gateway.
  void Heard(Seconds now) { last_heard_ = now; }
  // Why no gateway was heard for `patience`; empty while one was.
  std::string Deserted(Seconds patience, Seconds now) const;
  // "10.0.0.1:8001"
  std::string AddressOf(LinkId link) const;
  // Connections over which this worker is in.
  std::vector<LinkId> Joined() const;

  // To a gateway itself: its own connection or none.
  std::optional<LinkId> RouteTo(NodeId gateway) const;
  // To a peer: by the transfer's gateway where that reaches the peer; else by one that does; else
  // by any.
  std::optional<LinkId> RouteVia(NodeId gateway, NodeId peer) const;

  // False: the peer is gone for good; the gateway is to be told.
  bool PeerUp(LinkId link, NodeId peer);
  void PeerLost(LinkId link, NodeId peer, PeerLoss loss);
  // Peers that are gone since the last call. To be called often: time counts here.
  std::vector<NodeId> TakeGone(Seconds now);

  // A new life: every connection is to be made anew.
  void BeNew();

 private:
  struct Slot {  // A gateway's address
    bool given = false;
    int announced = 0;
    bool wanted() const { return given || announced > 0; }
    std::optional<LinkId> link;
    std::optional<NodeId> gateway;  // That was there last; two addresses may be one's.
    Seconds try_at{-1e9};
    Seconds wait;
    std::string failure;
  };
  struct Link {
    GatewayAddress address;
    bool connected = false;
    std::optional<NodeId> gateway;  // Once it has welcomed this worker
  };
  struct Peer {
    // Gateways that reach it; with a time: until when a lost connection's word counts.
    std::map<NodeId, std::optional<Seconds>> vouchers;
    std::set<NodeId> unreached;  // Gateways that know it, and say that they do not reach it
    bool doubted = false;
    std::optional<Seconds> forgotten_at;  // Nobody knows it
  };

  bool IsGone(Peer& peer, Seconds now) const;

  std::map<GatewayAddress, Slot> slots_;
  std::map<LinkId, Link> links_;
  std::map<NodeId, Peer> peers_;
  std::set<NodeId> gone_;  // A few bytes for each death, for this life.
  std::vector<NodeId> news_;
  LinkId last_link_ = 0;
  Seconds last_heard_;
};

}  // namespace divisi
