// What the processes of a cluster say to each other over a control connection: who they are, who
// else is there, and the hand-off's messages (handoff.h), which the gateway passes on between
// workers. One message is one frame: a length (u32) and that many bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "divisi/control/dispatcher.h"
#include "divisi/control/handoff.h"
#include "divisi/control/worker_counters.h"
#include "divisi/core/result.h"

namespace divisi {

// Raised with any change of a message.
inline constexpr uint32_t kClusterProtocol = 8;
// A prompt of a million tokens is 4 MB; the bound keeps a stranger from asking for memory.
inline constexpr uint32_t kMostFrameBytes = uint32_t{64} << 20;

// What must be the same on every worker of a cluster.
struct Compatibility {
  uint32_t protocol = kClusterProtocol;
  std::string model;      // Fingerprint of config and weights
  std::string tokenizer;  // Hash of tokenizer.json
  std::string kv_type;    // "bfloat16"
  std::string kv_layout;  // Layers, heads, dimensions
  uint32_t page_tokens = 16;
  std::string page_format;  // As the keys of its pages have it (KeySpace)

  // "the model differs: 3f2a... here, 77b0... there"; empty where all is the same.
  std::string DifferenceFrom(const Compatibility& other) const;
};

// Where a worker publishes what its caches hold (kv/event_socket.h): a PUB and a ROUTER socket.
struct EventEndpoints {
  std::string live;    // "tcp://10.0.0.2:5557"; empty: it publishes nothing
  std::string replay;  // Empty: it repeats nothing
  std::string topic;
  friend bool operator==(const EventEndpoints&, const EventEndpoints&) = default;
};

// A worker to the gateway, first.
struct HelloMessage {
  NodeId node;  // This life of the process
  WorkerRole role = WorkerRole::kReplica;
  std::string name;  // For people: host and port
  Compatibility compatibility;
  int64_t pages = 0;
  int64_t max_sequences = 0;
  int64_t step_tokens = 1;  // Most of one step
  int64_t context = 0;      // Longest prompt plus output that it runs (ContextLimit)
  int64_t page_bytes = 0;
  std::string data_address;  // Of its page memory; empty: it takes part in no transfer
  std::vector<std::byte> data_descriptor;
  uint32_t gateways = 1;  // That it is to be connected to, this one included
  EventEndpoints events;
  bool pool = false;             // Its prompts' prefixes may come from the remote pool
  uint32_t layers = 1;           // By which its computing follows reading; 1: it waits for all
  bool reads_peers = false;      // Other workers' host memory (Request::peer)
  std::string exported_at = "";  // HOST:PORT where others read its own; empty: they do not
};
// The gateway to a worker: it is in, as this gateway's.
struct WelcomeMessage {
  NodeId gateway;
};
// The gateway to a worker: it is not, and why. The connection ends.
struct RejectMessage {
  std::string reason;
  bool dead = false;  // It was declared dead: it may come back as a new life.
};
struct PingMessage {};
// The gateway to every worker: another one is there, or is lost.
struct PeerUpMessage {
  NodeId node;
  std::string data_address;
  std::vector<std::byte> data_descriptor;
};
enum class PeerLoss {
  kUnreached,  // This gateway does not reach it now: another one may.
  kDoubted,    // It is to be taken for gone, unless another gateway reaches it.
  kConfirmed,  // It is gone.
};
// A worker sends it to a gateway that presents a peer whose writes it has barred for good.
struct PeerGoneMessage {
  NodeId node;
  PeerLoss loss = PeerLoss::kConfirmed;
};
inline constexpr Seconds kLongestDrain{86400};
// A worker to its gateways: it leaves. It wants no new requests; with `now`, its process ends.
struct LeaveMessage {
  Seconds drain;  // What it has ends within this; kLongestDrain at most
  bool now = false;
};
// A hand-off message on its way; workers send those for each other through the gateway.
struct RelayMessage {
  NodeId from;
  NodeId to;
  HandoffMessage message;
};
// A worker to its gateways, twice a second: for status, metrics and choices. Gauges as of
// WorkerStats.
struct ReportMessage {
  int64_t running = 0, waiting = 0, held = 0, reserved = 0, prompt_backlog = 0;
  int64_t stopping = 0, computing = 0, writing = 0, handed_over = 0, ending = 0;
  int64_t pages_reserved = 0, pages_pinned = 0;
  int64_t blocks_total = 0, blocks_used = 0;
  int64_t pool_nodes = 0, pool_ready = 0;  // Of the remote pool, as the worker sees them
  WorkerCounters counters;
  WorkerRates rates;
};

// An operator to the gateway, instead of a hello: "status", "drain NAME", "role NAME ROLE".
struct QueryMessage {
  std::vector<std::string> words;
};
// Its answer: JSON, or what is wrong.
struct AnswerMessage {
  bool ok = false;
  std::string text;
};

using ClusterMessage = std::variant<HelloMessage, WelcomeMessage, RejectMessage, PingMessage,
                                    PeerUpMessage, PeerGoneMessage, RelayMessage, ReportMessage,
                                    QueryMessage, AnswerMessage, LeaveMessage>;

// Without the length. Requires: less than kMostFrameBytes.
std::vector<std::byte> EncodeClusterMessage(const ClusterMessage& message);
// Errors: kDataLoss for bytes that are no message.
Result<ClusterMessage> DecodeClusterMessage(std::span<const std::byte> bytes);

}  // namespace divisi
