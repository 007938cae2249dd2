// The sockets of ZeroMQ that events travel over; event_socket_zmq.cc alone includes its header.
// Nothing here waits but Wait.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "divisi/core/result.h"
#include "divisi/core/units.h"

namespace divisi {

// Threads and connections of some sockets, which must end before it.
class ZmqContext {
 public:
  ZmqContext();
  ~ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;
  void* get() const { return context_; }

 private:
  void* context_;
};

// Of one thread at a time.
class ZmqSocket {
 public:
  enum class Kind { kPublish, kSubscribe, kAnswer, kAsk };  // PUB, SUB, ROUTER, DEALER
  struct Limits {
    int queued = 1000;           // Messages to or from one peer.
    size_t message_bytes = 256;  // Of a peer's frame; it is disconnected beyond.
  };
  // Beyond this many frames a message is cut, which its count shows.
  static constexpr size_t kMostFrames = 8;

  // Errors: kResourceExhausted where there are no sockets left.
  static Result<std::unique_ptr<ZmqSocket>> Open(const ZmqContext& context, Kind kind,
                                                 Limits limits);
  ~ZmqSocket();  // What waits to be sent is lost.
  ZmqSocket(const ZmqSocket&) = delete;
  ZmqSocket& operator=(const ZmqSocket&) = delete;

  // Errors: kUnavailable where the address is taken, kInvalidArgument where it is none.
  Result<void> Bind(const std::string& endpoint);
  Result<void> Connect(const std::string& endpoint);
  // Where Bind bound it: the port that was given for port 0.
  std::string bound() const;
  // Takes messages whose first frame begins with that.
  void Subscribe(const std::string& prefix);

  enum class Sent { kSent, kFull, kGone };
  // A whole message, or nothing of it.
  Sent Send(std::span<const std::string_view> frames);
  // The next message; none: nothing came.
  std::optional<std::vector<std::string>> Receive();

  // From now on, what becomes of connections. Once.
  Result<void> Monitor();
  enum class Change { kConnected, kDisconnected };
  std::optional<Change> NextChange();

  void* get() const { return socket_; }
  void* monitor() const { return monitor_; }

 private:
  void AllowIpv6(const std::string& endpoint);
  ZmqSocket(const ZmqContext& context, void* socket) : context_(context), socket_(socket) {}
  const ZmqContext& context_;
  void* socket_;
  void* monitor_ = nullptr;
};

// Returns when one of the sockets has a message, `bell` (a descriptor) can be read, or after
// `most`.
void ZmqWait(std::span<void* const> sockets, int bell, Seconds most);

}  // namespace divisi
