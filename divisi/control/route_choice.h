// Which workers run a request: pure arithmetic over what is known of each. A request goes one of
// two ways: apart (a prefill worker computes its prompt, a decode worker the rest), or whole on a
// replica or on a decode worker.
//
// The time to the first token is the chapter's T = max(Q, R) + C (plan/route.h):
//   apart   Q the prompts ahead at P; R until D has reserved; C the prompt at P, the last chunk's
//           pages to D, and one decode step there, which ends before D looks up
//   whole   Q the prompts ahead; R nothing; C the prompt beside the worker's decodes
// Source: section 9.5.4.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "divisi/control/worker_rates.h"
#include "divisi/core/ids.h"
#include "divisi/core/result.h"
#include "divisi/plan/route.h"

namespace divisi {

enum class WorkerRole { kReplica, kPrefill, kDecode };
const char* RoleName(WorkerRole role);  // "replica", "prefill", "decode"
// Errors: kInvalidArgument with the names that there are.
Result<WorkerRole> ParseRole(const std::string& name);

//   kRoundRobin    workers of a role in turn
//   kLeastLoaded   the one with the fewest requests
//   kExpectedTtft  the shortest expected time to the first token
enum class RoutePolicy { kRoundRobin, kLeastLoaded, kExpectedTtft };
const char* PolicyName(RoutePolicy policy);  // "round-robin", "least-loaded", "expected-ttft"
// Errors: kInvalidArgument with the names that there are.
Result<RoutePolicy> ParsePolicy(const std::string& name);

// How much of a request's prefix a worker can have without computing it, in tokens from its
// beginning, as the directory shows it (kv/page_directory.h).
struct RoutePrefix {
  std::array<int64_t, 4> tokens{};         // [t]: in Tier t or a faster one
  std::array<double, 4> odds{1, 1, 1, 1};  // [t]: that a copy shown in Tier t is there
  int64_t promised = 0;                    // There, or being computed there
};

// A worker that takes requests.
struct RouteWorker {
  NodeId node;
  WorkerRole role = WorkerRole::kReplica;
  bool room = true;  // For one more now; without, it is not chosen, but one may wait for it
  int64_t requests = 0;
  int64_t decoding = 0;  // Of them, those past their first token
  Seconds queue;         // Of prompts that are ahead of a new one
  int64_t chunk = 2048;  // Prompt tokens that a step takes
  WorkerRates rates;
  RoutePrefix prefix;
};

// How the request would go.
struct RouteOption {
  std::optional<NodeId> prefill;  // Apart
  NodeId target;                  // The decode worker, or who runs the whole request
  RouteTimes times;               // times.compute has `transfer` and `step` in it
  Seconds transfer;
  Seconds step;
  int64_t requests = 0;  // Of the target; of two like times the fewer
  bool apart() const { return prefill.has_value(); }
  Seconds ttft() const { return times.Overlapped(); }
};

// When a prompt is long enough to be handed over, and why. Prefilling it where it is decoded makes
// the streams there wait for its work; handing it over makes itself wait:
//   work_D(n) * max(streams, 1)  against  reserve + last chunk / bandwidth + step_D
//                                         + max(work_P(n) - work_D(n), 0)
// An idle worker counts as one with a stream: the next one comes while it computes.
struct HandoverThreshold {
  std::optional<int64_t> from;  // Tokens; absent: no prompt is long enough
  bool given = false;           // Not computed: the operator's
  Seconds reserve;              // The terms
  Seconds step;
  Seconds work_per_token;
  Seconds transfer_per_token;
  int64_t streams = 0;
};

struct RouteRules {
  RoutePolicy policy = RoutePolicy::kExpectedTtft;
  std::optional<int64_t> disaggregate_from;  // Absent: computed; 0: every prompt is handed over
  Seconds reserve;                           // Measured: until D has answered
  Bytes bytes_per_token;                     // Of KV
};

struct RouteChoice {
  RouteOption chosen;
  std::vector<RouteOption> options;  // All that were compared, the chosen one among them
  HandoverThreshold threshold;       // Where both ways were open
  // "apart p->d ttft 31.02 ms (queue 0.00, ready 1.00, compute 30.02); ...", the chosen one first.
  // name: of a worker, for people.
  std::string Text(const std::function<std::string(NodeId)>& name) const;
};

// Whose turn it is, for kRoundRobin: the last one chosen, by role.
struct RouteTurns {
  std::array<NodeId, 3> last;
};

HandoverThreshold ThresholdOf(const RouteWorker& prefill, const RouteWorker& decode,
                              const RouteRules& rules);

// Absent: nobody can run it now. A prompt to be handed over waits for room rather than run whole.
// Of equal workers the first, so their order decides.
std::optional<RouteChoice> ChooseRoute(int64_t prompt_tokens, std::span<const RouteWorker> workers,
                                       const RouteRules& rules, RouteTurns& turns);

}  // namespace divisi
