// Engines of other makers, vLLM, SGLang or Dynamo, whose KV events a gateway follows. It sends them
// no requests; it says which of a prompt they hold, beside its own workers.
//
// An engine names blocks in its own way (kv/foreign_hash.h), so a prompt's blocks are named as it
// would. It is taken to serve the same model with the same tokenizer: its operator's promise.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "divisi/core/clock.h"
#include "divisi/core/log.h"
#include "divisi/core/result.h"
#include "divisi/engine/request.h"
#include "divisi/kv/event_socket.h"
#include "divisi/kv/foreign_hash.h"

namespace divisi {

struct ForeignEngine {
  std::string name;
  EventSource source;
  ForeignHashes hashes;
};

// "NAME=SCHEME:LIVE[+REPLAY][;block=N][;seed=TEXT][;topic=TEXT][;bytes]", SCHEME vllm, sglang or
// dynamo, LIVE and REPLAY endpoints: "a=vllm:tcp://10.0.0.7:5557+tcp://10.0.0.7:5558;block=16".
// Errors: kInvalidArgument, which says what is wrong.
Result<ForeignEngine> ParseForeignEngine(std::string_view text);

// What one engine holds of a prompt, from its first token on.
struct ForeignPrefix {
  std::string engine;
  int64_t tokens = 0;
  EventTier tier = EventTier::kDevice;  // The farthest that a block of it lies in
  friend bool operator==(const ForeignPrefix&, const ForeignPrefix&) = default;
};

// Safe from any thread; no call takes more than some milliseconds.
class ForeignEngines {
 public:
  // clock and logger outlive the result. Errors: kInvalidArgument for an endpoint that is none, and
  // a name that comes twice.
  static Result<std::unique_ptr<ForeignEngines>> Follow(std::vector<ForeignEngine> engines,
                                                        const Clock& clock, Logger& logger);
  ~ForeignEngines();

  // Takes some of what came; every 20 ms or so, since little is kept before. What is known of an
  // engine that is gone for a while is forgotten.
  void Absorb(Seconds now);
  // Of each engine that holds some of the prompt, in the order in which they were named.
  std::vector<ForeignPrefix> Holding(const Request& request) const;

  struct Status {
    std::string name;
    EventStreamStats stream;
    int64_t blocks = 0;
    int64_t refused = 0;  // Blocks beyond HeldBlocks::kMost
  };
  std::vector<Status> statuses() const;
  // Gauges of each engine, in Prometheus' text format.
  std::string Metrics(std::string_view labels) const;

 private:
  struct State;
  explicit ForeignEngines(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace divisi
