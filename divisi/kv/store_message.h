// What a node of the remote pool (`divisi store`) and its clients say to each other over a control
// connection. Objects themselves travel one-sided, over a Transport, between memories that the two
// name to each other here.
//
//   client                          node
//     | Hello                         |  who I am, where my memory is
//     |------------------------------>|  ends what an earlier session of mine left; connects to me
//     |                       Welcome |  where the node's memory is; only now calls may be made
//     |<------------------------------|
//     | Get{key, part, place}         |
//     |------------------------------>|  writes the object, or that part of it, there, then
//     |                Answer{length} |
//     |<------------------------------|
//     | Put{key, length, parent}      |
//     |------------------------------>|  reserves
//     |                 Answer{place} |
//     |<------------------------------|
//     | writes there, then Commit{sum}|
//     |------------------------------>|  checks the object, publishes it
//     |                        Answer |
//     |<------------------------------|
//
// A frame holds one or more messages. An endpoint that speaks another version is told so in words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "divisi/core/ids.h"
#include "divisi/core/result.h"
#include "divisi/core/units.h"
#include "divisi/kv/block_key.h"
#include "divisi/kv/page_object.h"

namespace divisi {

inline constexpr uint32_t kStoreProtocol = 2;
// Of the objects that are kept; a node and a client of different versions refuse each other.
inline constexpr uint16_t kStoreObjectVersion = kPageObjectVersion;
// Keys of one Has or Remove: a prompt of 64k tokens.
inline constexpr size_t kMaxStoreKeys = 4096;
// Messages of one frame: far more than a node answers between two looks at its connections.
inline constexpr size_t kMaxStoreMessages = 4096;

enum class StoreStatus : uint8_t {
  kOk,
  kMissing,    // No such object.
  kPresent,    // It is there already, or another client is writing it: nothing to do.
  kTooLarge,   // For the place of the Get, or for the node.
  kNoRoom,     // All that could give way is being read or written.
  kBad,        // The object contradicts its own header, or is not that of the key.
  kCancelled,  // As the client asked.
  kFailed,     // The bytes did not arrive.
};
inline constexpr int kStoreStatuses = 8;
const char* StoreStatusText(StoreStatus status);

// ---- From a client

struct StoreHello {
  uint16_t object_version = kStoreObjectVersion;
  NodeId node;
  std::string address;  // Of its Transport.
  std::string region;   // EncodeRegion of the memory where objects go.
  friend bool operator==(const StoreHello&, const StoreHello&) = default;
};
struct StoreGet {
  uint64_t call = 0;
  BlockKey key;
  Bytes offset;  // In the client's region.
  Bytes room;
  // Of the object these `room` bytes, no fewer; none: all of it, where it has room.
  std::optional<Bytes> skip;
  friend bool operator==(const StoreGet&, const StoreGet&) = default;
};
struct StorePut {
  uint64_t call = 0;
  BlockKey key;
  Bytes length;
  BlockKey parent;  // The page before it in its chain.
  friend bool operator==(const StorePut&, const StorePut&) = default;
};
// The bytes are in place. `sum`: the header's own sum, which covers those of the payload.
struct StoreCommit {
  uint64_t call = 0;
  uint64_t sum = 0;
  friend bool operator==(const StoreCommit&, const StoreCommit&) = default;
};
// Of a Get, or of a Put of which no byte is under way: it is answered, once, at any rate.
struct StoreCancel {
  uint64_t call = 0;
  friend bool operator==(const StoreCancel&, const StoreCancel&) = default;
};
struct StoreHas {
  uint64_t call = 0;
  std::vector<BlockKey> keys;
  friend bool operator==(const StoreHas&, const StoreHas&) = default;
};
struct StoreRemove {
  uint64_t call = 0;
  std::vector<BlockKey> keys;
  friend bool operator==(const StoreRemove&, const StoreRemove&) = default;
};
struct StoreClear {
  uint64_t call = 0;
  friend bool operator==(const StoreClear&, const StoreClear&) = default;
};
// For counters; also without a Hello, as the first and only message.
struct StoreQuery {
  friend bool operator==(const StoreQuery&, const StoreQuery&) = default;
};

// ---- From either

// Keeps the connection; a client's is sent back, so that it knows how long that takes.
struct StorePing {
  uint64_t number = 0;
  friend bool operator==(const StorePing&, const StorePing&) = default;
};

// ---- From a node

struct StoreWelcome {
  uint16_t object_version = kStoreObjectVersion;
  NodeId node;
  std::string address;
  std::string region;
  Bytes largest;  // Object that it takes.
  friend bool operator==(const StoreWelcome&, const StoreWelcome&) = default;
};
struct StoreReject {
  std::string reason;
  friend bool operator==(const StoreReject&, const StoreReject&) = default;
};
// value: of a Get the whole object's length, of a Put the place in the node's region, of a Remove
// or a Clear how many objects went.
struct StoreAnswer {
  uint64_t call = 0;
  StoreStatus status = StoreStatus::kOk;
  uint64_t value = 0;
  friend bool operator==(const StoreAnswer&, const StoreAnswer&) = default;
};
struct StoreHave {
  uint64_t call = 0;
  std::vector<bool> have;  // In the order of the keys.
  friend bool operator==(const StoreHave&, const StoreHave&) = default;
};
// Since the start, but for the gauges.
struct StoreCounters {
  int64_t memory_bytes = 0;  // Gauge: the budget.
  int64_t used_bytes = 0;    // Gauge.
  int64_t objects = 0;       // Gauge.
  int64_t sessions = 0;      // Gauge.
  int64_t reading = 0;       // Gauge: gets under way.
  int64_t writing = 0;       // Gauge: objects that are placed and not published.
  int64_t hits = 0;
  int64_t misses = 0;
  int64_t got_bytes = 0;
  int64_t failed_gets = 0;
  int64_t puts = 0;
  int64_t put_bytes = 0;
  int64_t refused_puts = 0;  // For lack of room.
  int64_t bad_puts = 0;      // Objects that were not what they said.
  int64_t lost_puts = 0;     // Their writers went away or were too slow.
  int64_t evictions = 0;
  int64_t removals = 0;
  int64_t breaches = 0;  // Connections that spoke otherwise than agreed.
  friend bool operator==(const StoreCounters&, const StoreCounters&) = default;
};

using StoreMessage = std::variant<StoreHello, StoreGet, StorePut, StoreCommit, StoreCancel,
                                  StoreHas, StoreRemove, StoreClear, StoreQuery, StorePing,
                                  StoreWelcome, StoreReject, StoreAnswer, StoreHave, StoreCounters>;

std::vector<std::byte> EncodeStoreFrame(std::span<const StoreMessage> messages);
// Errors: kInvalidArgument for a Hello, Welcome or Reject of another protocol version, with both;
// kDataLoss for other bytes.
Result<std::vector<StoreMessage>> DecodeStoreFrame(std::span<const std::byte> bytes);

// Each counter as Prometheus has it: divisi_store_hits_total and so on.
std::string StoreMetrics(const StoreCounters& counters);

}  // namespace divisi
