#include "divisi/sim/sim_directory.h"

#include <vector>

namespace divisi {

void SimDirectory::All(const std::function<void(SimGateway&)>& tell) { gateways_(tell); }

void SimDirectory::Down() {
  up_ = false;
  All([this](SimGateway& gateway) { gateway.registry().DirectoryDown(schedule_.now()); });
}

void SimDirectory::Up() {
  up_ = true;
  for (auto& [node, until] : leases_) until = schedule_.now() + kLease;
  // Who was away says anew whom it reaches, before anything else.
  vouchers_.clear();
  All([this](SimGateway& gateway) {
    for (const auto& [node, member] : gateway.registry().members()) {
      if (member.link) vouchers_[node].insert(gateway.id());
    }
  });
  All([this](SimGateway& gateway) { Tell(gateway); });
}

void SimDirectory::Tell(SimGateway& gateway) {
  if (!up_) return;
  for (const auto& [node, until] : leases_) gateway.registry().Leased(node);
  for (const NodeId node : dead_) gateway.registry().Declared(node);
  gateway.registry().DirectoryUp(schedule_.now());
}

void SimDirectory::Renew(NodeId worker) {
  if (!up_ || dead_.contains(worker)) return;
  const bool fresh = !leases_.contains(worker);
  leases_[worker] = schedule_.now() + kLease;
  if (fresh) All([worker](SimGateway& gateway) { gateway.registry().Leased(worker); });
}

void SimDirectory::Left(NodeId worker) {
  if (up_ && leases_.erase(worker) != 0) {
    All([worker](SimGateway& gateway) { gateway.registry().LeaseEnded(worker); });
  }
}

void SimDirectory::Tick() {
  if (!up_) return;
  std::vector<NodeId> over;
  for (const auto& [node, until] : leases_) {
    if (schedule_.now() >= until) over.push_back(node);
  }
  for (const NodeId node : over) Left(node);
}

void SimDirectory::Vouch(NodeId gateway, const VouchAction& vouch) {
  if (!up_) return;  // Up makes up for it.
  if (vouch.reaches) {
    vouchers_[vouch.node].insert(gateway);
  } else {
    vouchers_[vouch.node].erase(gateway);
  }
}

void SimDirectory::GatewayGone(NodeId gateway) {
  schedule_.In(kLease, [this, gateway] {
    for (auto& [node, gateways] : vouchers_) gateways.erase(gateway);
  });
}

void SimDirectory::Bury(NodeId worker) {
  schedule_.In(Soon(), [this, worker] {
    const bool alive = leases_.contains(worker) || !vouchers_[worker].empty();
    if (!up_ || alive || !dead_.insert(worker).second) return;
    All([this, worker](SimGateway& gateway) {
      schedule_.In(Soon(), [this, worker, id = gateway.id()] {
        All([&](SimGateway& one) {
          if (one.id() == id) one.registry().Declared(worker);
        });
      });
    });
  });
}

}  // namespace divisi
