// A control connection: frames in both directions over TCP, each a length and that many bytes; with
// certificates, over TLS that verifies both sides.
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
  // Starts the callbacks; before it no frame is read.
  virtual void Start(OnFrame frame, OnEnd end) = 0;
  // Queues a frame. Beyond kMostQueuedBytes, or a stranger's bound (below), the other side is taken
  // for stuck: the connection ends.
  virtual void Send(std::vector<std::byte> frame) = 0;
  virtual void Close(const std::string& why) = 0;
  // From now on one that was accepted is no stranger (below). Nothing happens to others.
  virtual void Welcome() = 0;
  // No frame is read, and silence is none, until Resume: what the other side says waits there. One
  // frame may still come. A connection is read from when it starts.
  virtual void Pause() = 0;
  virtual void Resume() = 0;
  // The other side's address, "192.0.2.7:41234", and whether it is this machine's loopback.
  virtual const std::string& peer() const = 0;
  virtual bool peer_is_loopback() const = 0;
};

inline constexpr size_t kMostQueuedBytes = size_t{256} << 20;
// Both sides send something at least this often, and end a connection that was silent for the
// other.
inline constexpr Seconds kHeartbeat{0.5};
inline constexpr Seconds kSilence{3};

// Strangers: connections that a loop accepted and nobody has welcomed, also before they have said
// anything. One ends after kHelloTime, or when it is the oldest of more than kMostStrangers: who
// means to join says so at once. No frame of it is longer than kMostStrangerBytes. What waits for
// it is one frame, however long, or kMostStrangerQueuedBytes: who asks reads before it asks again.
inline constexpr Seconds kHelloTime{10};
inline constexpr size_t kMostStrangers = 256;
inline constexpr uint32_t kMostStrangerBytes = uint32_t{64} << 10;
inline constexpr size_t kMostStrangerQueuedBytes = size_t{1} << 20;

// PEM files: this process's certificate with its chain, its key, and the authority that the other
// side's certificate must come from.
struct TlsFiles {
  std::string certificate;
  std::string key;
  std::string authority;
};

// One thread that runs connections and timers.
class FrameLoop {
 public:
  FrameLoop();
  // Ends every connection and waits for the callbacks under way.
  ~FrameLoop();

  // From now on connections are TLS 1.2 or newer, and both sides must have certificates of the
  // authority. Before Listen and Connect. Errors: kInvalidArgument for files that are none.
  Result<void> UseTls(const TlsFiles& files);

  // A new connection, or why one was refused, with its address.
  using OnAccept = std::function<void(Result<std::shared_ptr<FrameConnection>> connection)>;
  // Listens for good; returns the port. Who connects speaks first, within kSilence, and is a
  // stranger until it is welcomed. Who speaks plainly to a port that wants TLS, or TLS to one that
  // does not, is told so where it can be, and refused. Errors: kUnavailable where the address
  // cannot be had.
  Result<int> Listen(const std::string& host, int port, OnAccept accept);

  // Calls done once, in the loop's thread, `timeout` later at most.
  // Errors: kUnavailable, with the address and what happened.
  using OnConnect = std::function<void(Result<std::shared_ptr<FrameConnection>> connection)>;
  void Connect(const std::string& host, int port, Seconds timeout, OnConnect done);

  // Calls fn once, soon, in the loop's thread.
  void Post(std::function<void()> fn);
  // Calls fn again and again, `every` after its last call has returned.
  void Every(Seconds every, std::function<void()> fn);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace divisi
