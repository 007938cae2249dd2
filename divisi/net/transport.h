// How bytes move between processes: the seam between what decides about KV and experts and the
// network. A Transport is one process's data plane: memory that others may write to, connections to
// others, and writes into their memory, each of which is reported once when its end is known.
// Control messages are not its business: they travel over a channel of their own.
//
//   P: Connect(D) ... kConnected    Write, Write, Write ... kWritten, kWritten, kWritten
//   D: polls, or waits on fd()      bytes appear in its memory; D's program isn't told
//
// Guarantees, of every implementation.
//  1. kWritten with ok: the bytes are in the peer's memory, and whoever learns of it by a message
//     sent after this event, over any channel, sees them.
//  2. kWritten without ok: nothing is known. The bytes may be there, in part too, and may still
//     arrive, until a fence (3, 4). The local memory is free for other use.
//  3. Fence by the receiver: once Disconnect(P) or Refuse(P) has returned ok at D, no write of P
//     that began before lands any more; after Refuse(P) none ever does.
//  4. Fence by the sender: kConnected says that no write of an earlier connection from this process
//     to that peer lands any more. So after a failed write connect anew, then say that all is over.
//  5. Each accepted Write has exactly one kWritten. A peer that died, or is silent for
//     TransportOptions::silence, fails them; nothing waits for ever.
//  6. Writes are not ordered among themselves.
//
// Threads: one thread owns a Transport and makes every call, the destructor too. It must call Poll
// often, or whenever fd() wakes it: what others write is received there as well.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "divisi/core/ids.h"
#include "divisi/core/result.h"
#include "divisi/core/units.h"
#include "divisi/net/region.h"

namespace divisi {

struct TransportOptions {
  NodeId self;
  // Where to listen: "10.0.0.2:7001"; port 0 takes a free one. A wildcard (0.0.0.0, [::]) needs
  // `advertise`: peers can't connect to it.
  std::string listen = "127.0.0.1:0";
  // The host that address() names, where it differs from the one that listens.
  std::string advertise;
  // Bytes from writers of the same host are read from their memory, where the system allows it:
  // same user, no seccomp filter against process_vm_readv. False: they come over the network.
  bool read_peers = true;
  Seconds connect{5};  // From Connect to kConnected; past it the peer is lost.
  // A connection with writes under way and no news for this long is lost. Stalls shorter than this
  // (a stopped process, a failing link) are waited for.
  Seconds silence{5};
};

// At most this many writes of one connection are accepted and not reported: 16 GiB of 2 MiB pages.
inline constexpr int64_t kMaxPendingWrites = 8192;

// One write: local memory to [offset, offset + local.size()) of the region of Connect.
struct RemoteWrite {
  NodeId to;
  std::span<const std::byte> local;  // Unchanged until kWritten.
  Bytes offset;
  uint64_t token = 0;  // Comes back with kWritten. The caller's.

  Bytes size() const { return Bytes(static_cast<int64_t>(local.size())); }
};

struct TransportEvent {
  enum class Kind {
    kConnected,  // To `peer`, by Connect of ours.
    kWritten,    // `token`'s end.
    kLost,       // The connection of our Connect is gone, after its writes' ends. Connect again.
  };
  Kind kind = Kind::kWritten;
  NodeId peer;
  uint64_t token = 0;
  Bytes size;          // Of the write.
  bool ok = true;      // False with kLost.
  std::string reason;  // Where not ok.
};

// Counters since the start.
struct TransportStats {
  int64_t bytes_written = 0;  // Of writes that ended well.
  int64_t writes = 0;
  int64_t failed_writes = 0;
  int64_t bytes_received = 0;
  int64_t connections = 0;  // Now, in both directions.
};

class Transport {
 public:
  virtual ~Transport() = default;

  // What peers give to Connect: "10.0.0.2:7001".
  virtual const std::string& address() const = 0;

  // Lets peers that are told the descriptor write to `memory`, until the Transport ends.
  // `memory` is borrowed: it must outlive the Transport.
  // Errors: kResourceExhausted where the system can't pin it, with the limit to raise.
  virtual Result<RegionDescriptor> Register(std::span<std::byte> memory) = 0;

  // Begins to connect to the owner of `region` at `address`; kConnected or kLost follows. Writes
  // may be made at once and wait for it. A peer that is connected or connecting is left as it is,
  // where the region is the same. Errors: kInvalidArgument for an address that is none, a wildcard,
  // or another region while a connection lasts.
  virtual Result<void> Connect(const RegionDescriptor& region, const std::string& address) = 0;

  // Errors: kUnavailable where there is no connection (Connect first); kOutOfRange beyond the
  // region; kResourceExhausted past kMaxPendingWrites. Then nothing was begun.
  virtual Result<void> Write(const RemoteWrite& write) = 0;

  // Ends all connections with the peer, in both directions: writes under way to it fail, and those
  // of it no longer land (3). Either side may connect again. Does not wait: ends take some Polls.
  // Errors: kUnavailable until they have ended: some write of the peer may still land; keep its
  // target unused, and ask again. Idempotent.
  virtual Result<void> Disconnect(NodeId peer) = 0;
  // Disconnect, and never again a connection of or to that life of the process.
  virtual Result<void> Refuse(NodeId peer) = 0;

  // What happened since the last call, in order. Never sleeps; while bytes are under way it may
  // look for some hundred microseconds.
  virtual std::vector<TransportEvent> Poll() = 0;

  // For event loops. Call Arm() after Poll gave nothing: true, and fd() becomes readable when Poll
  // has work; false, and Poll has work now. Nobody reads from or closes fd(). Poll is due at
  // NextTimer() at the latest.
  virtual bool Arm() = 0;
  virtual int fd() const = 0;
  virtual std::optional<Seconds> NextTimer() const = 0;  // From now. Empty: none.

  virtual TransportStats stats() const = 0;
};

// Poll, and where that is empty, again after sleeping until fd(), a timer or `timeout`, whichever
// is first. May return nothing early.
std::vector<TransportEvent> WaitForEvents(Transport& transport, Seconds timeout);

}  // namespace divisi
