#include "divisi/sim/sim_links.h"

#include <variant>
#include <vector>

#include "divisi/control/frame_connection.h"

namespace divisi {
namespace {

// How often a connection that stands still is looked at.
constexpr Seconds kLook{0.05};

}  // namespace

SimLinks::SimLinks(SimSchedule& schedule, Random& random, const SimWeather& weather,
                   Listener listener)
    : schedule_(schedule), random_(random), weather_(weather), listener_(std::move(listener)) {}

Seconds SimLinks::Soon() { return Seconds(random_.Exponential(weather_.delay.value)); }

void SimLinks::Dial(size_t worker, NodeId life, size_t slot, LinkId at_worker) {
  const End end{worker, life, slot, at_worker, ++last_};
  schedule_.In(Soon(), [this, end] {
    if (!listener_.both_up(end) || Parted(end.worker, end.slot)) return listener_.refused(end);
    connections_[end.at_gateway] = std::make_shared<Connection>(Connection{.end = end});
    listener_.connected(end);
  });
}

void SimLinks::SendToGateway(size_t worker, LinkId at_worker, ClusterMessage message) {
  for (const auto& [link, connection] : connections_) {
    const End& end = connection->end;
    if (end.worker != worker || end.at_worker != at_worker) continue;
    if (!connection->worker_open) continue;  // Of an earlier process
    return Send(connection, false, std::move(message));
  }
}

void SimLinks::SendToWorker(LinkId at_gateway, ClusterMessage message) {
  const auto found = connections_.find(at_gateway);
  if (found != connections_.end()) Send(found->second, true, std::move(message));
}

void SimLinks::Send(const Shared& connection, bool to_worker, ClusterMessage message) {
  if (!std::holds_alternative<RelayMessage>(message)) {
    return Push(connection, to_worker, std::move(message));
  }
  if (random_.Chance(weather_.drop)) {
    ++counters_.dropped;
    return;
  }
  if (random_.Chance(weather_.repeat)) {
    ++counters_.repeated;
    Push(connection, to_worker, message);
  }
  if (!weather_.unordered) return Push(connection, to_worker, std::move(message));
  schedule_.In(Soon(),
               [this, connection, to_worker, message] { Deliver(connection, to_worker, message); });
}

void SimLinks::Push(const Shared& connection, bool to_worker, ClusterMessage message) {
  std::deque<Queued>& queue = to_worker ? connection->to_worker : connection->to_gateway;
  Seconds ready = schedule_.now() + Soon();
  if (!queue.empty()) ready = std::max(ready, queue.back().ready);
  queue.push_back({ready, std::move(message)});
  schedule_.At(ready, [this, connection, to_worker] { Pump(connection, to_worker); });
}

void SimLinks::Pump(const Shared& connection, bool to_worker) {
  std::deque<Queued>& queue = to_worker ? connection->to_worker : connection->to_gateway;
  if (Parted(connection->end.worker, connection->end.slot)) {
    schedule_.In(kLook, [this, connection, to_worker] { Pump(connection, to_worker); });
    return;
  }
  while (!queue.empty() && queue.front().ready <= schedule_.now()) {
    ClusterMessage message = std::move(queue.front().message);
    queue.pop_front();
    Deliver(connection, to_worker, std::move(message));
  }
}

void SimLinks::Deliver(const Shared& connection, bool to_worker, ClusterMessage message) {
  const bool open = to_worker ? connection->worker_open : connection->gateway_open;
  if (!open || Parted(connection->end.worker, connection->end.slot)) return;
  listener_.frame(connection->end, to_worker, std::move(message));
}

// One end hears that the connection has ended, once what is under way has come.
void SimLinks::Shut(const Shared& connection, bool at_worker, Seconds wait) {
  const std::deque<Queued>& queue = at_worker ? connection->to_worker : connection->to_gateway;
  Seconds at = schedule_.now() + wait;
  if (!queue.empty()) at = std::max(at, queue.back().ready);
  schedule_.At(at, [this, connection, at_worker] {
    bool& open = at_worker ? connection->worker_open : connection->gateway_open;
    if (!std::exchange(open, false)) return;
    if (!connection->worker_open && !connection->gateway_open) {
      connections_.erase(connection->end.at_gateway);
    }
    listener_.ended(connection->end, at_worker);
  });
}

void SimLinks::CloseAtGateway(LinkId at_gateway) {
  const auto found = connections_.find(at_gateway);
  if (found == connections_.end()) return;
  Shut(found->second, true, Seconds(0));
  Shut(found->second, false, Seconds(0));
}

void SimLinks::WorkerGone(size_t worker) {
  std::vector<Shared> ended;
  for (const auto& [link, connection] : connections_) {
    if (connection->end.worker == worker) ended.push_back(connection);
  }
  // Its machine is gone with it, or only the process.
  const Seconds wait = random_.Chance(0.3) ? kSilence : Soon();
  for (const Shared& connection : ended) {
    connection->worker_open = false;
    Shut(connection, false, wait);
  }
}

void SimLinks::GatewayGone(size_t slot) {
  std::vector<Shared> ended;
  for (const auto& [link, connection] : connections_) {
    if (connection->end.slot == slot) ended.push_back(connection);
  }
  const Seconds wait = random_.Chance(0.3) ? kSilence : Soon();
  for (const Shared& connection : ended) {
    connection->gateway_open = false;
    Shut(connection, true, wait);
  }
}

void SimLinks::Part(size_t worker, size_t slot, Seconds length) {
  if (!parted_.insert({worker, slot}).second) return;
  schedule_.In(length, [this, worker, slot] { parted_.erase({worker, slot}); });
  if (length < kSilence) return;
  schedule_.In(kSilence * 0.999, [this, worker, slot] {
    std::vector<Shared> silent;
    for (const auto& [link, connection] : connections_) {
      const End& end = connection->end;
      if (end.worker == worker && end.slot == slot) silent.push_back(connection);
    }
    for (const Shared& connection : silent) {
      connection->to_worker.clear();
      connection->to_gateway.clear();
      Shut(connection, true, Soon());
      Shut(connection, false, Soon());
    }
  });
}

}  // namespace divisi
