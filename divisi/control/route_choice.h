// Which workers run a request: pure arithmetic over what is known of each. A request goes one of
// two ways: apart (a prefill worker computes its prompt, a decode worker the rest), or whole on a
// replica or on a decode worker.
//
// The time to the first token is the chapter's T = max(Q, R) + C (route_estimate.h):
//   whole   as estimated for the worker, beside its decodes
//   apart   as estimated for P, which can read once D has reserved (R); and in C what is left to
//           write to D when the prompt is computed, and one decode step there, which ends before D
//           looks up. All pages that D lacks are written, the first of them, P's cached ones among
//           them, when the first of P's steps has ended:
//             max(last chunk / bandwidth, all / bandwidth - (C_P - first step))
// Sessions have no place of their own: a request goes where its prefix is as far as that is sooner.
// Source: section 9.5.4.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "divisi/control/route_estimate.h"

namespace divisi {

//   kRoundRobin    workers of a role in turn
//   kLeastLoaded   the one with the fewest requests
//   kCacheFirst    the one with the longest prefix in its own tiers, there or being computed; of
//                  like ones that with the fewest requests
//   kExpectedTtft  the least cost: the expected time to the first token, as RouteObjective has it;
//                  at most a tenth more where that saves half of the prompt's work
enum class RoutePolicy { kRoundRobin, kLeastLoaded, kCacheFirst, kExpectedTtft };
// "round-robin", "least-loaded", "cache-first", "expected-ttft"
const char* PolicyName(RoutePolicy policy);
// Errors: kInvalidArgument with the names that there are.
Result<RoutePolicy> ParsePolicy(const std::string& name);

// How the request would go.
struct RouteOption {
  std::optional<NodeId> prefill;  // Apart
  NodeId target;                  // The decode worker, or who runs the whole request
  RouteEstimate at;               // Who computes the prompt
  Seconds transfer;               // Apart
  Seconds step;
  int64_t present = 0;   // Tokens that D has already
  int64_t requests = 0;  // Of its workers; of two like costs the fewer
  bool apart() const { return prefill.has_value(); }
  NodeId computes() const { return prefill.value_or(target); }
  // Where all that is shown is there; compute has `transfer` and `step` in it.
  RouteTimes times() const;
  Seconds ttft() const { return times().Overlapped(); }
  // The mean or quantile over what may be there, and with what others lose.
  Seconds expected() const { return at.expected + transfer + step; }
  Seconds cost() const { return expected() + at.delay; }
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
  RouteSetting estimate;
};

struct RouteChoice {
  RouteOption chosen;
  std::vector<RouteOption> options;  // All that were compared, the chosen one among them
  HandoverThreshold threshold;       // Where both ways were open
  // "apart p->d ttft 31.02 ms (queue 0.00, ready 1.00, compute 30.02); ...", the chosen one first.
  // name: of a worker, for people.  most: options at most.
  std::string Text(const std::function<std::string(NodeId)>& name, size_t most = SIZE_MAX) const;
};

// Whose turn it is, for kRoundRobin: the last one chosen, by role.
struct RouteTurns {
  std::array<NodeId, 3> last;
};

HandoverThreshold ThresholdOf(const RouteWorker& prefill, const RouteWorker& decode,
                              const RouteRules& rules);

// When a prompt is handed over is asked of its whole length where the operator set it; else of what
// is left to compute at the decode worker in question.
// Absent: nobody can run it now. A prompt to be handed over waits for room rather than run whole.
// Of equal workers the first, so their order decides.
std::optional<RouteChoice> ChooseRoute(int64_t prompt_tokens, std::span<const RouteWorker> workers,
                                       const RouteRules& rules, RouteTurns& turns);

}  // namespace divisi
