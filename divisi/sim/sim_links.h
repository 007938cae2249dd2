// The control connections of a simulated cluster, between worker processes and gateways. Each
// carries frames in order, with delays; a hand-off message may also be lost, come twice or overtake
// others, which is worse than TCP is. While its ends are parted a connection stands still, and ends
// after kSilence.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "divisi/control/cluster_message.h"
#include "divisi/control/membership.h"
#include "divisi/core/random.h"
#include "divisi/sim/sim_schedule.h"
#include "divisi/sim/sim_weather.h"

namespace divisi {

class SimLinks {
 public:
  // A connection's two ends: of the worker process `worker`, in one of its lives, its own number,
  // at the gateway `slot` another.
  struct End {
    size_t worker = 0;
    NodeId life;
    size_t slot = 0;
    LinkId at_worker = 0;
    LinkId at_gateway = 0;
  };
  struct Listener {
    std::function<bool(const End&)> both_up;    // Asked when the call arrives
    std::function<void(const End&)> connected;  // At the worker
    std::function<void(const End&)> refused;
    std::function<void(const End&, bool at_worker)> ended;
    std::function<void(const End&, bool to_worker, ClusterMessage)> frame;
  };
  struct Counters {
    int64_t dropped = 0, repeated = 0;
  };

  // All outlive this.
  SimLinks(SimSchedule& schedule, Random& random, const SimWeather& weather, Listener listener);

  void Dial(size_t worker, NodeId life, size_t slot, LinkId at_worker);
  void SendToGateway(size_t worker, LinkId at_worker, ClusterMessage message);
  void SendToWorker(LinkId at_gateway, ClusterMessage message);
  // What was sent before still arrives.
  void CloseAtGateway(LinkId at_gateway);
  // The process is gone: its ends hear nothing, the others that it ended, soon or after kSilence.
  void WorkerGone(size_t worker);
  void GatewayGone(size_t slot);

  void Part(size_t worker, size_t slot, Seconds length);
  bool Parted(size_t worker, size_t slot) const { return parted_.contains({worker, slot}); }
  const Counters& counters() const { return counters_; }

 private:
  struct Queued {
    Seconds ready;
    ClusterMessage message;
  };
  struct Connection {
    End end;
    bool worker_open = true, gateway_open = true;
    std::deque<Queued> to_worker, to_gateway;
  };
  using Shared = std::shared_ptr<Connection>;

  void Send(const Shared& connection, bool to_worker, ClusterMessage message);
  void Push(const Shared& connection, bool to_worker, ClusterMessage message);
  void Pump(const Shared& connection, bool to_worker);
  void Deliver(const Shared& connection, bool to_worker, ClusterMessage message);
  void Shut(const Shared& connection, bool at_worker, Seconds wait);
  Seconds Soon();

  SimSchedule& schedule_;
  Random& random_;
  const SimWeather& weather_;
  const Listener listener_;
  Counters counters_;
  LinkId last_ = 0;
  std::map<LinkId, Shared> connections_;  // By the gateway's number
  std::set<std::pair<size_t, size_t>> parted_;
};

}  // namespace divisi
