// What the two ends of a data connection say to each other around the bytes of writes.
//
//   writer              owner of the region
//     | Hello              |      who I am, whom and which region I mean
//     |------------------->|      ends earlier connections of the same writer first
//     |            Welcome |      or why not
//     |<-------------------|
//     | Write + bytes      |      checked again: key and range. On one host the owner fetches the
//     |===================>|      bytes itself from where Write says (peer_memory.h)
//     |               Acks |      the bytes are in place, or why not; several in one message
//     |<-------------------|
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "divisi/core/ids.h"
#include "divisi/core/result.h"
#include "divisi/core/units.h"
#include "divisi/net/peer_memory.h"

namespace divisi {

// Why an owner does not take what a writer wants. Numbers on the wire.
enum class DataRefusal : uint32_t {
  kNone = 0,           // It does.
  kOtherProcess = 1,   // Another life of a process listens here now.
  kUnknownRegion = 2,  // No region has that key.
  kOutOfRange = 3,     // Beyond the region.
  kRefused = 4,        // That writer is refused (Transport::Refuse).
  kIncomplete = 5,     // The bytes did not arrive whole.
};
// "another process listens at that address" and so on.
const char* RefusalText(DataRefusal refusal);

struct HelloMessage {
  NodeId from;
  NodeId to;
  uint64_t key = 0;
  PeerMemory memory;  // Of the writer, where it lets the owner read it.
  friend bool operator==(const HelloMessage&, const HelloMessage&) = default;
};
struct WelcomeMessage {
  DataRefusal refusal = DataRefusal::kNone;
  bool reads = false;  // The owner can read the writer's memory.
  friend bool operator==(const WelcomeMessage&, const WelcomeMessage&) = default;
};
// Precedes `size` bytes, or says where they lie in the writer's memory.
struct WriteMessage {
  uint64_t sequence = 0;
  uint64_t key = 0;
  Bytes offset;
  Bytes size;
  uint64_t source = 0;  // 0: they follow.
  friend bool operator==(const WriteMessage&, const WriteMessage&) = default;
};
struct Ack {
  uint64_t sequence = 0;
  DataRefusal refusal = DataRefusal::kNone;
  friend bool operator==(const Ack&, const Ack&) = default;
};
// At most kMaxAcks: 12 bytes each, 1.5 KiB, well below what UCX takes as a header over TCP (8 KiB).
struct AcksMessage {
  std::vector<Ack> acks;
  friend bool operator==(const AcksMessage&, const AcksMessage&) = default;
};
inline constexpr size_t kMaxAcks = 128;

using DataMessage = std::variant<HelloMessage, WelcomeMessage, WriteMessage, AcksMessage>;

std::string EncodeData(const DataMessage& message);
// Errors: kInvalidArgument for a Hello of another version, kDataLoss for other bytes.
Result<DataMessage> DecodeData(std::string_view bytes);

}  // namespace divisi
