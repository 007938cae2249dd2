// A control connection: frames in both directions over TCP, each a length and that many bytes.
//
// Threads: callbacks come from the thread that runs the loop; Send and Close may be called from
// any.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "divisi/core/result.h"
#include "divisi/core/units.h"

namespace divisi {

class FrameConnection {
 public:
  // After Close, or the other side's, no frame is given any more.
  using OnFrame = std::function<void(std::vector<std::byte> frame)>;
  // Once, last: why it ended.
  using OnEnd = std::function<void(const std::string& why)>;
  virtual ~FrameConnection() = default;
  // Queues a frame. Beyond kMostQueuedBytes the other side is taken for stuck: the connection ends.
  virtual void Send(std::vector<std::byte> frame) = 0;
  virtual void Close(const std::string& why) = 0;
  // "192.0.2.7:41234"
  virtual const std::string& peer() const = 0;
};

inline constexpr size_t kMostQueuedBytes = size_t{256} << 20;
// Both sides send something at least this often, and end a connection that was silent for the
// other.
inline constexpr Seconds kHeartbeat{0.5};
inline constexpr Seconds kSilence{3};

// One thread that runs connections and timers.
class FrameLoop {
 public:
  FrameLoop();
  // Ends every connection and waits for the callbacks under way.
  ~FrameLoop();

  using OnAccept = std::function<void(std::shared_ptr<FrameConnection> connection)>;
  // Starts a connection's callbacks; before it no frame is read.
  static void Start(const std::shared_ptr<FrameConnection>& connection,
                    FrameConnection::OnFrame frame, FrameConnection::OnEnd end);
  // Listens for good; returns the port. Errors: kUnavailable where the address cannot be had.
  Result<int> Listen(const std::string& host, int port, OnAccept accept);
  // Errors: kUnavailable where nobody answers within `timeout`.
  Result<std::shared_ptr<FrameConnection>> Connect(const std::string& host, int port,
                                                   Seconds timeout);
  // Calls fn once, soon, in the loop's thread.
  void Post(std::function<void()> fn);
  // Calls fn again and again, `every` after its last call has returned.
  void Every(Seconds every, std::function<void()> fn);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace divisi
