// A simulated directory, as etcd is used: the leases of workers, who vouches for whom, and deaths,
// each written only where no lease and no voucher contradicts. It may be away for a while; what it
// holds then stays, and leases run on from its return.
#pragma once

#include <functional>
#include <map>
#include <set>

#include "divisi/core/ids.h"
#include "divisi/core/random.h"
#include "divisi/sim/sim_gateway.h"
#include "divisi/sim/sim_schedule.h"

namespace divisi {

class SimDirectory {
 public:
  static constexpr Seconds kLease{2};

  // gateways: calls what it is given for each gateway that is up. All outlive this.
  using Gateways = std::function<void(const std::function<void(SimGateway&)>&)>;
  SimDirectory(SimSchedule& schedule, Random& random, Gateways gateways)
      : schedule_(schedule), random_(random), gateways_(std::move(gateways)) {}

  bool up() const { return up_; }
  void Down();
  void Up();

  // A process that lives and reaches the directory has its lease; one that does not loses it.
  void Renew(NodeId worker);
  void Left(NodeId worker);
  void Tick();
  void Vouch(NodeId gateway, const VouchAction& vouch);
  void GatewayGone(NodeId gateway);
  void Bury(NodeId worker);
  // A gateway that came: all that is known.
  void Tell(SimGateway& gateway);

  int64_t deaths() const { return static_cast<int64_t>(dead_.size()); }

 private:
  void All(const std::function<void(SimGateway&)>& tell);
  Seconds Soon() { return Seconds(random_.Exponential(0.005)); }

  SimSchedule& schedule_;
  Random& random_;
  const Gateways gateways_;
  bool up_ = true;
  std::map<NodeId, Seconds> leases_;             // Until when
  std::map<NodeId, std::set<NodeId>> vouchers_;  // Of each worker
  std::set<NodeId> dead_;
};

}  // namespace divisi
