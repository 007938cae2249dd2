// The writer's end of one data connection: greets, sends writes within a window, and knows when
// each one's bytes are in place. A state machine without I/O: ucx_transport.cc moves its messages.
//
//   greeting --Welcome--> ready --Failed--> gone
//      |  refusal, timeout    ^ silence, lost link
#pragma once

#include <deque>
#include <map>
#include <optional>

#include "divisi/net/data_message.h"
#include "divisi/net/transport.h"

namespace divisi {

// Bytes of one connection under way at once; further writes wait here. Four pages of 2 MiB, or 0.3
// ms at 25 GB/s: many round trips. More made loopback TCP slower by a fifth (bench/RESULTS.md), and
// it bounds what a lost connection leaves behind and what one Poll of an owner copies.
inline constexpr Bytes kWriteWindow{8 << 20};

class DataWriter {
 public:
  struct Send {
    std::string header;
    std::span<const std::byte> body;
    uint64_t token = 0;  // 0: not a write.
  };

  // own: this process's memory, where owners may read it.
  DataWriter(const TransportOptions& options, const RegionDescriptor& region, const PeerMemory& own,
             Seconds now);

  const RegionDescriptor& region() const { return region_; }

  // Errors: as of Transport::Write.
  Result<void> Write(const RemoteWrite& write, Seconds now);

  // What the owner said. Errors: the connection is of no use; the message says why.
  Result<void> Receive(std::string_view header, Seconds now);
  // A Send's bytes were taken, or with !ok were not: then the connection is of no use either.
  Result<void> Sent(uint64_t token, bool ok, Seconds now);
  // Errors: kDeadlineExceeded.
  Result<void> CheckTime(Seconds now) const;
  std::optional<Seconds> NextDeadline() const;
  // The connection is gone: every write that has not ended fails, in order of Write.
  void Fail(const std::string& reason);

  std::vector<Send> TakeSends();
  std::vector<TransportEvent> TakeEvents();

 private:
  struct Flight {
    RemoteWrite write;
    bool sent = false;
    std::optional<DataRefusal> answer;
  };
  using Flights = std::map<uint64_t, Flight>;  // By sequence.

  void Fill(Seconds now);
  void EndIfDone(Flights::iterator flight, Seconds now);

  const NodeId self_;
  const RegionDescriptor region_;
  const Seconds greeted_by_;
  const Seconds silence_;
  bool ready_ = false;
  bool owner_reads_ = false;  // Bytes need no sending.
  Seconds news_;              // When something last moved.
  uint64_t last_sequence_ = 0;
  Bytes in_flight_;
  std::deque<RemoteWrite> waiting_;
  Flights flights_;
  std::vector<Send> sends_;
  std::vector<TransportEvent> events_;
};

}  // namespace divisi
