// The owner's end of all data connections into one process: which regions there are, who may write
// to them, where bytes go, and who is still to be answered. A state machine without I/O.
//
// A connection:  new --Hello--> waiting --earlier ones of that writer closed--> welcomed
// A newer connection of a writer ends its earlier ones, and is welcomed when these are closed: so a
// writer that connects anew knows that nothing of before lands any more.
// A stranger, who does not name this process and a region's key, changes nothing and is told why;
// what it sends but a Hello ends its connection.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "divisi/net/data_message.h"
#include "divisi/net/transport.h"

namespace divisi {

// Connections that have not been welcomed, at once. A cluster's workers come one after the other,
// and come again; more than this are strangers, who are not to take all descriptors.
inline constexpr int64_t kMaxUnwelcomed = 128;

class DataOwner {
 public:
  using Connection = uint64_t;  // Numbers grow in order of arrival.
  struct Action {
    Connection connection = 0;
    std::string message;  // To be sent...
    std::string close;    // ...or, where not empty, why it is to be closed.
  };

  // Fetches bytes from a writer's memory, as ReadPeerMemory does.
  using Read =
      std::function<bool(const PeerMemory&, uint64_t address, std::byte* to, size_t bytes)>;

  DataOwner(const TransportOptions& options, Read read)
      : options_(options), read_(std::move(read)) {}

  void AddRegion(uint64_t key, std::span<std::byte> memory);

  void Accepted(Connection connection, Seconds now);
  // Where the bytes behind this header go; nullptr: nowhere.
  std::byte* Place(Connection connection, std::string_view header, size_t bytes);
  // A header came and its bytes, if any, are in place, or with !ok are not.
  void Receive(Connection connection, std::string_view header, bool ok);
  // Nothing of it lands any more.
  void Closed(Connection connection);

  void Disconnect(NodeId writer);
  void Refuse(NodeId writer) { refused_.insert(writer); }
  bool IsRefused(NodeId writer) const { return refused_.contains(writer); }
  // Whether some connection of the writer is not Closed.
  bool HasConnection(NodeId writer) const;
  bool Knows(Connection connection) const { return connections_.contains(connection); }

  // Closes what has not said Hello in time.
  void CheckTime(Seconds now);
  std::optional<Seconds> NextDeadline() const;

  std::vector<Action> TakeActions();
  Bytes received() const { return received_; }

 private:
  struct State {
    bool greeted = false;          // Hello came.
    std::optional<NodeId> writer;  // After a Hello that was not refused.
    bool welcomed = false;
    bool closing = false;
    Seconds hello_by;
    PeerMemory memory;                 // Of the writer; pid 0: not to be read.
    std::map<uint64_t, Bytes> placed;  // Writes whose bytes are on their way, by sequence
    std::vector<Ack> acks;
  };

  void Hello(Connection connection, State& state, const HelloMessage& hello);
  void Close(Connection connection, State& state, const std::string& reason);
  void WelcomeWaiting();
  DataRefusal Fetch(const State& state, const WriteMessage& write) const;
  DataRefusal Check(const State& state, const WriteMessage& write, size_t bytes) const;
  int64_t Unwelcomed() const;

  const TransportOptions options_;
  const Read read_;
  std::map<uint64_t, std::span<std::byte>> regions_;  // By key.
  // Lives of processes that were declared dead. Grows by one with each, for this process's life.
  std::set<NodeId> refused_;
  std::map<Connection, State> connections_;
  std::vector<Action> actions_;
  Bytes received_;
};

}  // namespace divisi
