// Drives a load against a server: sends each planned request when it is due and the concurrency
// limit lets it, and records what comes back. Beside the load it can leave midway (cancellation
// soaks) and send broken requests.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "divisi/cli/load_client.h"
#include "divisi/cli/load_source.h"
#include "divisi/cli/load_stats.h"

namespace divisi {

// The server and what every request to it says.
struct LoadTarget {
  HttpAddress address;
  std::string api_key;
  std::string model;
  bool chat = false;
  std::optional<double> temperature;
  bool ignore_eos = true;
  std::vector<TokenId> alphabet;  // Prompt tokens are drawn from these.
  uint64_t seed = 0;
};

struct RunProgress {
  int64_t started = 0;
  int64_t ended = 0;
  int64_t running = 0;
  std::optional<int64_t> total;
  int64_t token_events = 0;
  Seconds elapsed;
};

struct RunOptions {
  int64_t max_concurrency = 0;      // Requests at once; 0: no limit.
  std::optional<Seconds> duration;  // No request starts after it.
  double disconnect_fraction = 0;   // Of the requests: their client leaves after a random token.
  double broken_per_second = 0;     // Broken requests beside the load.
  std::function<void(const RunProgress&)> progress;  // A few times a second.
  bool stop_on_interrupt = true;  // Ctrl-C ends the run and keeps what was measured.
};

// How the server took the broken requests.
struct BrokenTally {
  int64_t sent = 0;
  int64_t refused = 0;     // 4xx, or the connection closed.
  int64_t incomplete = 0;  // Left by us after the server had waited for the rest.
  int64_t accepted = 0;    // 2xx: a fault of the server's.
  int64_t failed = 0;      // 5xx, silence, refused connections: a fault of the server's.
  std::map<std::string, int64_t> faults;  // Of the last two: "name: what happened".
};

struct LoadResult {
  std::vector<RequestRecord> records;  // In order of sending.
  BrokenTally broken;
  Seconds duration;          // First request sent to last one ended.
  bool interrupted = false;  // What was running then is marked as abandoned.
};

LoadResult RunLoad(LoadClient& client, const LoadTarget& target, RequestSource& source,
                   const RunOptions& options);

// What the server says about itself.
struct ServerModel {
  std::string id;
  std::optional<int64_t> max_model_len;
};
// The first model of /v1/models. Errors: kUnavailable with how to start a server; kUnauthenticated;
// kInternal for an answer of another shape.
Result<ServerModel> FirstModel(LoadClient& client, const HttpAddress& address,
                               const std::string& api_key);

// The distinct ids of ordinary prose, from /tokenize. Errors: kNotFound when the server has no such
// endpoint; kInternal.
Result<std::vector<TokenId>> ProseAlphabet(LoadClient& client, const HttpAddress& address,
                                           const std::string& api_key, const std::string& model);

}  // namespace divisi
