#include "divisi/control/membership.h"

#include <algorithm>
#include <utility>

#include "divisi/control/frame_connection.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

// After a connection has ended or failed; doubled each time up to the bound, for the sake of a
// gateway that hundreds of workers look for.
constexpr Seconds kFirstTry{0.1};
constexpr Seconds kMostTry{2};
// A peer that no gateway has known for this long, a lease of the hand-off, is gone.
constexpr Seconds kForgotten{10};

}  // namespace

void Membership::Expect(const std::vector<GatewayAddress>& addresses) {
  for (const GatewayAddress& address : addresses) {
    slots_[address].given = true;
    slots_[address].wait = kFirstTry;
  }
}

void Membership::Announce(const GatewayAddress& address) {
  Slot& slot = slots_[address];
  ++slot.announced;
  slot.try_at = Seconds(-1e9);
  slot.wait = kFirstTry;
}

void Membership::Withdraw(const GatewayAddress& address) {
  const auto slot = slots_.find(address);
  if (slot == slots_.end() || slot->second.announced == 0) return;
  --slot->second.announced;
  if (!slot->second.wanted() && !slot->second.link) slots_.erase(slot);
}

std::vector<Membership::Dial> Membership::TakeDials(Seconds now) {
  std::vector<Dial> dials;
  for (auto& [address, slot] : slots_) {
    if (slot.link || now < slot.try_at) continue;
    if (slot.gateway && RouteTo(*slot.gateway)) continue;  // Reached by another address.
    slot.link = ++last_link_;
    links_[last_link_] = {.address = address};
    dials.push_back({last_link_, address});
  }
  return dials;
}

void Membership::Connected(LinkId link) {
  if (const auto found = links_.find(link); found != links_.end()) found->second.connected = true;
}

bool Membership::Ended(LinkId link, const std::string& why, Seconds now) {
  const auto found = links_.find(link);
  if (found == links_.end()) return false;
  const Link ended = std::move(found->second);
  links_.erase(found);
  if (ended.gateway && !RouteTo(*ended.gateway)) {
    for (auto& [node, peer] : peers_) {
      const auto word = peer.vouchers.find(*ended.gateway);
      if (word != peer.vouchers.end()) word->second = now + kSilence;
      peer.unreached.erase(*ended.gateway);
    }
  }
  const auto slot = slots_.find(ended.address);
  if (slot == slots_.end() || slot->second.link != link) return false;
  if (!slot->second.wanted()) {
    slots_.erase(slot);
    return true;
  }
  slot->second.link.reset();
  slot->second.try_at = now + slot->second.wait;
  slot->second.wait = std::min(slot->second.wait * 2, kMostTry);
  return std::exchange(slot->second.failure, why) != why;
}

void Membership::Welcomed(LinkId link, NodeId gateway) {
  const auto found = links_.find(link);
  if (found == links_.end()) return;
  found->second.gateway = gateway;
  Slot& slot = slots_.at(found->second.address);
  slot.wait = kFirstTry;
  slot.gateway = gateway;
  slot.failure.clear();
}

std::string Membership::Deserted(Seconds patience, Seconds now) const {
  if (now - last_heard_ < patience) return "";
  if (slots_.empty()) return Format("no gateway was announced in {}", HumanSeconds(patience));
  std::string why = Format("no gateway was reached in {}", HumanSeconds(patience));
  for (const auto& [address, slot] : slots_) {
    const std::string at = Format("{}:{}", address.host, address.port);
    const bool named = slot.failure.find(at) != std::string::npos;
    why += named ? "; " + slot.failure
                 : Format("; {}: {}", at, slot.failure.empty() ? "no answer yet" : slot.failure);
  }
  return why;
}

std::string Membership::AddressOf(LinkId link) const {
  const auto found = links_.find(link);
  if (found == links_.end()) return "?";
  return Format("{}:{}", found->second.address.host, found->second.address.port);
}

std::vector<LinkId> Membership::Joined() const {
  std::vector<LinkId> joined;
  for (const auto& [id, link] : links_) {
    if (link.gateway) joined.push_back(id);
  }
  return joined;
}

std::optional<LinkId> Membership::RouteTo(NodeId gateway) const {
  for (const auto& [id, link] : links_) {
    if (link.gateway == gateway) return id;
  }
  return std::nullopt;
}

std::optional<LinkId> Membership::RouteVia(NodeId gateway, NodeId peer) const {
  const auto known = peers_.find(peer);
  const auto reaches = [&](NodeId node) {
    return known != peers_.end() && known->second.vouchers.contains(node);
  };
  const auto own = RouteTo(gateway);
  if (own && reaches(gateway)) return own;
  std::optional<LinkId> any = own;
  for (const auto& [id, link] : links_) {
    if (!link.gateway) continue;
    if (reaches(*link.gateway)) return id;
    if (!any) any = id;
  }
  return any;
}

bool Membership::PeerUp(LinkId link, NodeId peer) {
  if (gone_.contains(peer)) return false;
  const auto from = links_.find(link);
  if (from == links_.end() || !from->second.gateway) return true;
  Peer& known = peers_[peer];
  known.vouchers[*from->second.gateway] = std::nullopt;
  known.unreached.erase(*from->second.gateway);
  known.doubted = false;
  known.forgotten_at.reset();
  return true;
}

void Membership::PeerLost(LinkId link, NodeId peer, PeerLoss loss) {
  if (gone_.contains(peer)) return;
  if (loss == PeerLoss::kConfirmed) {
    peers_.erase(peer);
    gone_.insert(peer);
    news_.push_back(peer);
    return;
  }
  const auto from = links_.find(link);
  const auto known = peers_.find(peer);
  if (from == links_.end() || !from->second.gateway || known == peers_.end()) return;
  known->second.vouchers.erase(*from->second.gateway);
  known->second.unreached.insert(*from->second.gateway);
  known->second.forgotten_at.reset();
  known->second.doubted |= loss == PeerLoss::kDoubted;
}

bool Membership::IsGone(Peer& peer, Seconds now) const {
  std::erase_if(peer.vouchers,
                [&](const auto& word) { return word.second && *word.second <= now; });
  if (!peer.vouchers.empty()) return false;
  if (peer.doubted) return true;
  if (!peer.unreached.empty()) return false;
  if (!peer.forgotten_at || Joined().empty()) peer.forgotten_at = now + kForgotten;
  return now >= *peer.forgotten_at;
}

std::vector<NodeId> Membership::TakeGone(Seconds now) {
  for (auto at = peers_.begin(); at != peers_.end();) {
    if (!IsGone(at->second, now)) {
      ++at;
      continue;
    }
    gone_.insert(at->first);
    news_.push_back(at->first);
    at = peers_.erase(at);
  }
  return std::exchange(news_, {});
}

void Membership::BeNew() {
  links_.clear();
  peers_.clear();
  gone_.clear();
  news_.clear();
  for (auto slot = slots_.begin(); slot != slots_.end();) {
    slot->second.link.reset();
    slot = slot->second.wanted() ? std::next(slot) : slots_.erase(slot);
  }
}

}  // namespace divisi
