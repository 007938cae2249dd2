// One node of the remote pool: keeps page objects in its memory for clients that put and get them
// one-sided. A state machine over a Transport; control frames go in and out.
//
// A session is one control connection:
//   new --Hello--> fencing --nothing of the client's earlier session lands--> connecting
//       --my connection to its memory stands, Welcome--> ready --> ended
// 1. A Get is served only over a connection that stood before Welcome: so a client that ends its
//    session and fences me knows that nothing lands in its memory any more.
// 2. A session that ends, for whatever reason, is fenced before what it was writing is given to
//    others. One that does not commit in time ends.
// 3. An object is visible once it was checked whole (page_object.h), and unchanged from then on.
// 4. Readers pin what they are sent until the write's end is known, which the Transport bounds.
// 5. With a source the memory holds copies of what is being sent, and was lately. A get waits until
//    there is room for its object, and clients take turns; a put ends its session.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "divisi/kv/store_message.h"
#include "divisi/kv/store_source.h"
#include "divisi/kv/store_space.h"
#include "divisi/kv/store_transport.h"

namespace divisi {

// Calls of one session that are not answered; who makes more breaks the protocol.
inline constexpr size_t kMaxStoreCalls = 1024;
// Sent to one client at once; what else it asked for waits, and pins nothing.
inline constexpr Bytes kMaxStoreReading{int64_t{128} << 20};

struct StoreNodeOptions {
  NodeId self;
  // From a place to its commit: 2 MiB at a hundredth of 1 Gbit/s take 2 s.
  Seconds put_patience{10};
  bool report_objects = false;  // For TakeChanges
  // Objects are read from there, by way of the node's memory, and clients only get and ask; null:
  // clients put them. Outlives the node.
  StoreSource* source = nullptr;
};

class StoreNode {
 public:
  using Session = uint64_t;  // The driver's name of a connection, never reused.
  struct Output {
    Session session = 0;
    std::vector<std::byte> frame;
    bool welcome = false;  // Before the frame: from now on the client is known.
    bool close = false;    // After the frame, which may be empty.
    std::string why;
  };

  // memory: registered as `region` with the transport; both outlive this.
  StoreNode(const StoreNodeOptions& options, Transport& transport, std::span<std::byte> memory,
            const RegionDescriptor& region);

  void Receive(Session session, std::span<const std::byte> frame, Seconds now);
  // The connection is gone.
  void Ended(Session session, Seconds now);
  // Whatever the transport has, and what is due. Whether anything happened.
  bool Step(Seconds now);
  // Answers of gets whose session has more under way are held for a moment, so that a stream of
  // them costs few frames.
  std::vector<Output> TakeOutputs(Seconds now);
  // Whether some are held: TakeOutputs is due within a millisecond.
  bool holds() const { return holds_; }
  // Objects that became visible or are no longer, since the last call, in order.
  std::vector<StoreSpace::Change> TakeChanges() { return space_.TakeChanges(); }

  StoreCounters counters() const;

 private:
  enum class State { kNew, kFencing, kConnecting, kReady };
  struct Writing {
    StoreSpace::Object object;
    BlockKey key;
    Seconds commit_by;
  };
  struct Client {
    State state = State::kNew;
    bool welcome = false;  // It is in `out`.
    NodeId node;
    RegionDescriptor region;
    std::string address;
    std::deque<StoreGet> waiting;
    Bytes reading;
    int64_t reads = 0;
    std::map<uint64_t, Writing> writing;  // By call
    Bytes placed;
    std::vector<StoreMessage> out;
    // Good gets that `out` answers; they are held while it has nothing else.
    size_t held_answers = 0;
    Bytes held;
    Seconds held_since;
  };
  using Clients = std::map<Session, Client>;
  struct Reading {
    Session session = 0;
    uint64_t call = 0;
    StoreSpace::Object object;
    Bytes length;         // Of the part that is sent
    bool begins = false;  // It is the object's first
  };
  // Places whose writer is not fenced yet.
  struct Orphans {
    std::vector<StoreSpace::Slot> slots;
    Seconds try_at;
  };

  Result<void> Handle(Clients::iterator client, const StoreMessage& message, Seconds now);
  Result<void> Greet(Clients::iterator client, const StoreHello& hello, Seconds now);
  Result<void> Join(Client& client);
  Result<void> HandleCall(Clients::iterator client, const StoreMessage& message, Seconds now);
  void Place(Client& client, const StorePut& put, Seconds now);
  void Commit(Client& client, const StoreCommit& commit);
  void Cancel(Client& client, const StoreCancel& cancel);
  enum class Served { kOne, kNone, kNoRoom };
  void Serve(Clients::iterator client);
  Served ServeOne(Clients::iterator client);
  bool ServeAll();
  bool Fetch(const BlockKey& key);
  bool Send(Clients::iterator client, const StoreGet& get);
  void Handle(const TransportEvent& event, Seconds now);
  void Sent(const TransportEvent& event, Seconds now);
  void CheckTime(Seconds now);
  // Tells the client why where there is one to hear it.
  void End(Clients::iterator client, const Error& error, Seconds now);
  // fence_at: when its data connection is to end.
  void Forget(Clients::iterator client, Seconds now, Seconds fence_at);
  bool TryFence(NodeId node, Seconds now);
  void FenceAgain(Seconds now);
  Clients::iterator ClientOf(NodeId node);

  const StoreNodeOptions options_;
  StoreTransport transport_;
  const std::span<std::byte> memory_;
  const RegionDescriptor region_;
  StoreSpace space_;
  Clients clients_;
  std::map<uint64_t, Reading> reading_;  // By token
  uint64_t last_token_ = 0;
  std::map<NodeId, Orphans> unfenced_;
  std::vector<Output> outputs_;
  StoreCounters counters_;
  Seconds check_at_;
  bool holds_ = false;
  int fetches_ = 0;  // Since the last Step
  Session next_turn_ = 0;
};

}  // namespace divisi
