// A worker's connections to gateways, by the numbers that Membership gave them. What they bring
// lies here until the deciding thread takes it. Beyond kMostWaiting bytes nothing more is read
// until then: gateways that have more to say keep it, and end the connection beyond
// kMostQueuedBytes.
//
// Threads: one takes, dials and sends; a loop's own puts in, and calls `wake`. It also sends the
// heartbeats, so that a worker in a long step is not taken for dead.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "divisi/control/cluster_message.h"
#include "divisi/control/frame_connection.h"
#include "divisi/control/membership.h"

namespace divisi {

inline constexpr size_t kMostWaiting = size_t{32} << 20;

class GatewayLinks {
 public:
  struct Arrival {
    enum class Kind { kConnected, kFrame, kEnded };
    Kind kind = Kind::kFrame;
    LinkId link = 0;
    std::vector<std::byte> frame;
    std::string why;        // kEnded
    bool loopback = false;  // kConnected: the gateway is on this machine
  };

  explicit GatewayLinks(std::function<void()> wake);

  // Errors: as FrameLoop::UseTls.
  Result<void> UseTls(const TlsFiles& files) { return loop_.UseTls(files); }
  void Dial(const Membership::Dial& dial);
  // Nothing happens for a connection that has ended.
  void Send(LinkId link, const ClusterMessage& message);
  // Ends all; nothing of them arrives any more.
  void CloseAll();
  std::deque<Arrival> Take();

 private:
  void Ping();
  void Put(Arrival arrival);
  std::vector<std::shared_ptr<FrameConnection>> Open() const;  // With the lock held
  void Opened(LinkId link, const std::shared_ptr<FrameConnection>& connection);

  const std::function<void()> wake_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::deque<Arrival> arrivals_;
  size_t waiting_ = 0;   // Bytes of them
  bool paused_ = false;  // Nothing is read.
  std::map<LinkId, std::shared_ptr<FrameConnection>> connections_;
  LinkId closed_ = 0;  // Up to this number nothing counts any more.
  LinkId last_ = 0;

  FrameLoop loop_;  // Last: its thread ends before what it uses goes.
};

}  // namespace divisi
