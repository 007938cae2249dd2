#include "divisi/kv/event_socket_zmq.h"

#include <zmq.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "divisi/core/check.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

// As many sources as a gateway may follow, three sockets each.
constexpr int kMostSockets = 16384;
// A peer that is silent is pinged, and given up after three times that.
constexpr int kHeartbeatMs = 5'000;
// Between tries to connect, doubled from the first to the last.
constexpr int kReconnectMs = 100;
constexpr int kReconnectMostMs = 5'000;

void SetInt(void* socket, int option, int value) {
  CHECK(zmq_setsockopt(socket, option, &value, sizeof value) == 0, "{}", zmq_strerror(errno));
}

int TypeOf(ZmqSocket::Kind kind) {
  switch (kind) {
    case ZmqSocket::Kind::kPublish:
      return ZMQ_PUB;
    case ZmqSocket::Kind::kSubscribe:
      return ZMQ_SUB;
    case ZmqSocket::Kind::kAnswer:
      return ZMQ_ROUTER;
    default:
      return ZMQ_DEALER;
  }
}

Error EndpointError(const std::string& endpoint, const char* what) {
  const int error = errno;
  const bool taken = error == EADDRINUSE;
  return {taken ? Code::kUnavailable : Code::kInvalidArgument,
          Format("cannot {} {}: {}{}", what, endpoint, zmq_strerror(error),
                 taken ? "; choose another port, or 0 for any"
                       : "; an endpoint looks like tcp://HOST:PORT or ipc:///PATH")};
}

class Frame {
 public:
  Frame() { zmq_msg_init(&message_); }
  ~Frame() { zmq_msg_close(&message_); }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  bool Receive(void* socket) { return zmq_msg_recv(&message_, socket, ZMQ_DONTWAIT) >= 0; }
  bool more() { return zmq_msg_more(&message_) != 0; }
  std::string Text() {
    return {static_cast<const char*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)};
  }

 private:
  zmq_msg_t message_;
};

std::optional<std::vector<std::string>> ReceiveFrom(void* socket) {
  std::vector<std::string> frames;
  while (true) {
    Frame frame;
    // Parts of a message arrive together, so only the first may be missing.
    if (!frame.Receive(socket)) return std::nullopt;
    if (frames.size() <= ZmqSocket::kMostFrames) frames.push_back(frame.Text());
    if (!frame.more()) return frames;
  }
}

}  // namespace

ZmqContext::ZmqContext() : context_(zmq_ctx_new()) {
  CHECK(context_ != nullptr);
  zmq_ctx_set(context_, ZMQ_MAX_SOCKETS, kMostSockets);
}
ZmqContext::~ZmqContext() { zmq_ctx_term(context_); }

Result<std::unique_ptr<ZmqSocket>> ZmqSocket::Open(const ZmqContext& context, Kind kind,
                                                   Limits limits) {
  void* socket = zmq_socket(context.get(), TypeOf(kind));
  if (socket == nullptr) {
    return Error{Code::kResourceExhausted,
                 Format("no socket for KV events: {}; raise the limit of open files (ulimit -n)",
                        zmq_strerror(errno))};
  }
  SetInt(socket, ZMQ_LINGER, 0);
  SetInt(socket, ZMQ_SNDHWM, limits.queued);
  SetInt(socket, ZMQ_RCVHWM, limits.queued);
  SetInt(socket, ZMQ_HEARTBEAT_IVL, kHeartbeatMs);
  SetInt(socket, ZMQ_HEARTBEAT_TIMEOUT, 3 * kHeartbeatMs);
  SetInt(socket, ZMQ_RECONNECT_IVL, kReconnectMs);
  SetInt(socket, ZMQ_RECONNECT_IVL_MAX, kReconnectMostMs);
  const auto bytes = static_cast<int64_t>(limits.message_bytes);
  CHECK(zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &bytes, sizeof bytes) == 0);
  // Say where an answer cannot go rather than drop it.
  if (kind == Kind::kAnswer) SetInt(socket, ZMQ_ROUTER_MANDATORY, 1);
  return std::unique_ptr<ZmqSocket>(new ZmqSocket(context, socket));
}

ZmqSocket::~ZmqSocket() {
  if (monitor_ != nullptr) {
    zmq_socket_monitor(socket_, nullptr, 0);
    zmq_close(monitor_);
  }
  zmq_close(socket_);
}

// Only where it is asked for: a wildcard is of IPv4 otherwise.
void ZmqSocket::AllowIpv6(const std::string& endpoint) {
  if (endpoint.find('[') != std::string::npos) SetInt(socket_, ZMQ_IPV6, 1);
}

Result<void> ZmqSocket::Bind(const std::string& endpoint) {
  AllowIpv6(endpoint);
  if (zmq_bind(socket_, endpoint.c_str()) != 0) return EndpointError(endpoint, "listen at");
  return {};
}

Result<void> ZmqSocket::Connect(const std::string& endpoint) {
  AllowIpv6(endpoint);
  if (zmq_connect(socket_, endpoint.c_str()) != 0) return EndpointError(endpoint, "connect to");
  return {};
}

std::string ZmqSocket::bound() const {
  char text[512] = "";
  size_t size = sizeof text;
  if (zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, text, &size) != 0) return {};
  return text;
}

void ZmqSocket::Subscribe(const std::string& prefix) {
  CHECK(zmq_setsockopt(socket_, ZMQ_SUBSCRIBE, prefix.data(), prefix.size()) == 0);
}

ZmqSocket::Sent ZmqSocket::Send(std::span<const std::string_view> frames) {
  for (size_t i = 0; i < frames.size(); ++i) {
    const int more = i + 1 < frames.size() ? ZMQ_SNDMORE : 0;
    if (zmq_send(socket_, frames[i].data(), frames[i].size(), ZMQ_DONTWAIT | more) >= 0) continue;
    // Whether a message goes is decided with its first frame.
    return errno == EAGAIN ? Sent::kFull : Sent::kGone;
  }
  return Sent::kSent;
}

std::optional<std::vector<std::string>> ZmqSocket::Receive() { return ReceiveFrom(socket_); }

Result<void> ZmqSocket::Monitor() {
  const std::string endpoint = Format("inproc://monitor-{}", socket_);
  constexpr int kEvents = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED;
  if (zmq_socket_monitor(socket_, endpoint.c_str(), kEvents) != 0) {
    return EndpointError(endpoint, "watch");
  }
  monitor_ = zmq_socket(context_.get(), ZMQ_PAIR);
  if (monitor_ == nullptr || zmq_connect(monitor_, endpoint.c_str()) != 0) {
    return Error{Code::kResourceExhausted, Format("no socket to watch a connection of KV events: "
                                                  "{}; raise the limit of open files (ulimit -n)",
                                                  zmq_strerror(errno))};
  }
  SetInt(monitor_, ZMQ_LINGER, 0);
  return {};
}

std::optional<ZmqSocket::Change> ZmqSocket::NextChange() {
  if (monitor_ == nullptr) return std::nullopt;
  const auto frames = ReceiveFrom(monitor_);
  uint16_t event = 0;
  if (!frames || frames->empty() || frames->front().size() < sizeof event) return std::nullopt;
  std::memcpy(&event, frames->front().data(), sizeof event);
  return event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED ? Change::kConnected : Change::kDisconnected;
}

void ZmqWait(std::span<void* const> sockets, int bell, Seconds most) {
  std::vector<zmq_pollitem_t> items;
  items.push_back({nullptr, bell, ZMQ_POLLIN, 0});
  for (void* socket : sockets) items.push_back({socket, 0, ZMQ_POLLIN, 0});
  const double ms = std::clamp(std::ceil(most.value * 1e3), 0.0, 60e3);
  zmq_poll(items.data(), static_cast<int>(items.size()), static_cast<long>(ms));
}

}  // namespace divisi
