#include "divisi/control/gateway_links.h"

#include <algorithm>
#include <utility>

namespace divisi {
namespace {

constexpr Seconds kConnectTimeout{2};

}  // namespace

GatewayLinks::GatewayLinks(std::function<void()> wake) : wake_(std::move(wake)) {
  loop_.Every(kHeartbeat, [this] { Ping(); });
}

void GatewayLinks::Ping() {
  const std::lock_guard lock(mutex_);
  for (const auto& [link, connection] : connections_) {
    connection->Send(EncodeClusterMessage(PingMessage{}));
  }
}

std::vector<std::shared_ptr<FrameConnection>> GatewayLinks::Open() const {
  std::vector<std::shared_ptr<FrameConnection>> open;
  for (const auto& [link, connection] : connections_) open.push_back(connection);
  return open;
}

void GatewayLinks::Put(Arrival arrival) {
  std::vector<std::shared_ptr<FrameConnection>> pausing;
  {
    const std::lock_guard lock(mutex_);
    if (arrival.link <= closed_) return;
    if (arrival.kind == Arrival::Kind::kEnded) connections_.erase(arrival.link);
    waiting_ += arrival.frame.size() + sizeof arrival;
    arrivals_.push_back(std::move(arrival));
    // Again at each: Resume of the last Take may have come after Pause.
    paused_ = waiting_ > kMostWaiting;
    if (paused_) pausing = Open();
  }
  for (const auto& connection : pausing) connection->Pause();
  wake_();
}

void GatewayLinks::Dial(const Membership::Dial& dial) {
  const LinkId link = dial.link;
  {
    const std::lock_guard lock(mutex_);
    last_ = std::max(last_, link);
  }
  loop_.Connect(
      dial.address.host, dial.address.port, kConnectTimeout,
      [this, link](Result<std::shared_ptr<FrameConnection>> connection) {
        if (connection) return Opened(link, *connection);
        Put({.kind = Arrival::Kind::kEnded, .link = link, .why = connection.error().message});
      });
}

void GatewayLinks::Opened(LinkId link, const std::shared_ptr<FrameConnection>& connection) {
  {
    const std::lock_guard lock(mutex_);
    if (link <= closed_) return connection->Close("not wanted any more");
    connections_[link] = connection;
    if (paused_) connection->Pause();
  }
  Put({.kind = Arrival::Kind::kConnected,
       .link = link,
       .loopback = connection->peer_is_loopback()});
  connection->Start(
      [this, link](std::vector<std::byte> frame) {
        Put({.kind = Arrival::Kind::kFrame, .link = link, .frame = std::move(frame)});
      },
      [this, link](const std::string& why) {
        Put({.kind = Arrival::Kind::kEnded, .link = link, .why = why});
      });
}

void GatewayLinks::Send(LinkId link, const ClusterMessage& message) {
  std::shared_ptr<FrameConnection> connection;
  {
    const std::lock_guard lock(mutex_);
    const auto found = connections_.find(link);
    if (found == connections_.end()) return;
    connection = found->second;
  }
  connection->Send(EncodeClusterMessage(message));
}

void GatewayLinks::CloseAll() {
  std::map<LinkId, std::shared_ptr<FrameConnection>> closing;
  {
    const std::lock_guard lock(mutex_);
    closing = std::exchange(connections_, {});
    arrivals_.clear();
    waiting_ = 0;
    paused_ = false;
    closed_ = last_;
  }
  for (const auto& [link, connection] : closing) connection->Close("a new life");
}

std::deque<GatewayLinks::Arrival> GatewayLinks::Take() {
  std::vector<std::shared_ptr<FrameConnection>> resuming;
  std::deque<Arrival> taken;
  {
    const std::lock_guard lock(mutex_);
    taken = std::exchange(arrivals_, {});
    waiting_ = 0;
    if (std::exchange(paused_, false)) resuming = Open();
  }
  for (const auto& connection : resuming) connection->Resume();
  return taken;
}

}  // namespace divisi
