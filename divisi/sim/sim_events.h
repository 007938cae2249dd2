// KV events between simulated workers and gateways: the production EventLog of each life, a
// channel that loses, repeats, delays and reorders batches, and stands still while its ends are
// parted, and the production EventStream of each gateway that follows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "divisi/control/gateway_core.h"
#include "divisi/kv/event_log.h"
#include "divisi/kv/event_stream.h"
#include "divisi/sim/sim_world.h"

namespace divisi {

class SimEvents {
 public:
  // In the place of a worker: the pool.
  static constexpr size_t kPool = SIZE_MAX;

  struct Listener {
    std::function<void(size_t slot, NodeId life, const EventUpdate&)> heard;
    std::function<bool(size_t worker, size_t slot)> parted;
  };
  struct Counters {
    int64_t lost = 0, gaps = 0, replays = 0, snapshots = 0, losses = 0;
  };

  // All outlive this.
  SimEvents(SimSchedule& schedule, Random& random, const SimWeather& weather, Listener listener);

  // A life publishes from now on, and no longer.
  void Begin(NodeId life, size_t worker);
  void End(NodeId life);
  void Publish(NodeId life, const std::vector<KvEvent>& events);

  // The gateway at a slot.
  void Follow(size_t slot, NodeId life);
  void Unfollow(size_t slot, NodeId life);
  void GatewayGone(size_t slot);

  // Every so often: connections come and go, and streams have their timers.
  void Tick();
  Counters counters() const;

 private:
  struct Source {
    size_t worker = 0;
    std::unique_ptr<EventLog> log;
    bool gathers = false;  // A batch goes out soon.
  };
  struct Follower {
    size_t slot = 0;
    NodeId life;
    EventStream stream;
    bool connected = false;
  };
  using FollowerId = uint64_t;  // Never used again

  bool Reaches(const Follower& follower) const;
  void Flush(Source& source, NodeId life);
  void Ask(FollowerId id, Follower& follower);
  void Answer(FollowerId id, const ReplayAsk& ask);
  void Take(FollowerId id, Follower& follower);
  Seconds Delay() const { return Seconds(random_.Exponential(weather_.delay.value + 1e-4)); }
  static void Add(const Follower& follower, Counters& sum);
  // Runs it later, if the gateway still follows then.
  template <typename Fn>
  void Later(FollowerId id, Seconds wait, Fn fn);

  SimSchedule& schedule_;
  Random& random_;
  const SimWeather& weather_;
  const Listener listener_;
  std::map<NodeId, Source> sources_;
  std::map<FollowerId, Follower> followers_;
  FollowerId last_ = 0;
  Counters counters_;  // Of followers that are gone
};

}  // namespace divisi
