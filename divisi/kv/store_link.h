// A client's end of one node of the remote pool: the session, the calls of it, and when to try
// again. A state machine over a Transport that it shares with the links to other nodes.
//
//   idle --Dial--> dialing --Hello--> greeting --Welcome, Connect--> joining --> ready
//     ^                                                                            |
//     `----- backoff ----- fencing <-------- anything that goes wrong -------------'
//
// A session ends as a whole: its calls fail, and they do so only when nothing of it lands any more,
// so that their memory is free. A call whose time is over asks the node to drop it and is released
// when the node has answered; a node that does not ends the session.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "divisi/core/random.h"
#include "divisi/kv/remote_pages.h"
#include "divisi/kv/store_message.h"
#include "divisi/kv/store_transport.h"

namespace divisi {

struct StoreLinkOptions {
  NodeId self;
  Bytes most_under_way{int64_t{64} << 20};
  Seconds step{5};   // Each of dialing, greeting and joining.
  Seconds grace{2};  // From a call's deadline to the node's answer.
  Seconds first_backoff{0.1};
  Seconds most_backoff{5};
  Seconds ping{0.5};
  // Connects when a call comes and ends the session after so long without one; absent: it always
  // has one, or tries to.
  std::optional<Seconds> on_demand;
};

// One call of one node.
struct StoreCall {
  enum class Kind { kGet, kPut, kHas, kRemove, kClear };
  Kind kind = Kind::kGet;
  uint64_t number = 0;
  std::vector<BlockKey> keys;  // One for a get or a put.
  Bytes offset;                // Of a get: in this process's region
  Bytes room;
  std::optional<Bytes> skip;          // As in StoreGet
  std::span<const std::byte> object;  // Of a put
  uint64_t sum = 0;
  BlockKey parent;
  Seconds deadline;

  Bytes size() const {
    return kind == Kind::kGet ? room : Bytes(static_cast<int64_t>(object.size()));
  }
};

class StoreLink {
 public:
  struct Output {
    enum class Kind { kDial, kSend, kHangUp };
    Kind kind = Kind::kSend;
    std::vector<std::byte> frame;
  };

  // region, address: where this process's memory is.
  StoreLink(const StoreLinkOptions& options, StoreTransport& transport,
            const RegionDescriptor& region, uint64_t seed);

  // False: not now, with the reason in health().
  bool Usable() const;
  // Requires: Usable().
  void Begin(StoreCall call);

  void Dialed(Result<void> result, Seconds now);
  void Receive(std::span<const std::byte> frame, Seconds now);
  void HungUp(const std::string& why, Seconds now);
  // Whether the event is of this link's node, or of a write of it.
  bool Handle(const TransportEvent& event, Seconds now);
  void Step(Seconds now);

  std::vector<Output> TakeOutputs();
  // Of calls as Begin numbered them.
  std::vector<RemoteDone> TakeDone();
  RemoteHealth health() const;
  // No session, no call, nothing to wait for: it may be dropped.
  bool idle() const { return state_ == State::kIdle && rested_ && gets_.empty(); }

 private:
  enum class State { kIdle, kDialing, kGreeting, kJoining, kReady, kFencing };
  struct Active {
    StoreCall call;
    bool placed = false;   // Of a put: the node has said where.
    bool writing = false;  // Its bytes are under way.
    bool late = false;     // Its end was told, at its deadline: the node is asked to drop it.
  };
  using Calls = std::map<uint64_t, Active>;

  void Enter(State state, Seconds now);
  void End(const std::string& why, Seconds now);
  void TryFence(Seconds now);
  Result<void> Handle(const StoreMessage& message, Seconds now);
  Result<void> Welcome(const StoreWelcome& welcome, Seconds now);
  void Answer(const StoreAnswer& answer, Seconds now);
  Result<void> Place(Calls::iterator active, Bytes offset);
  void Written(Calls::iterator active, const TransportEvent& event, Seconds now);
  void Pump(Seconds now);
  void Send(const StoreCall& call);
  void Finish(Calls::iterator active, RemoteDone done, Seconds now);
  void CheckIdle(Seconds now);
  void CheckTime(Seconds now);
  void CheckCall(Active& active, Seconds now);
  void Measure(Seconds now);

  const StoreLinkOptions options_;
  StoreTransport& transport_;
  const RegionDescriptor region_;
  Random random_;
  State state_ = State::kIdle;
  Seconds due_;  // Of the state: to dial, to give up, to fence again.
  Seconds backoff_;
  bool rested_ = false;  // kIdle, on demand: may dial at once.
  Seconds used_at_;
  Seconds ping_at_;
  std::map<uint64_t, Seconds> pings_;  // When each was sent
  uint64_t last_ping_ = 0;
  NodeId node_;
  std::string address_;  // Of its transport
  Bytes largest_;
  std::deque<StoreCall> gets_, others_;  // Not begun
  Calls active_;
  Bytes under_way_;
  Seconds check_at_;
  std::vector<StoreMessage> out_;
  std::vector<Output> outputs_;
  std::vector<RemoteDone> done_;
  // Gets under way since; bytes got since then.
  int64_t gets_under_way_ = 0;
  Seconds measured_at_;
  Bytes measured_;
  RemoteHealth health_;
};

}  // namespace divisi
