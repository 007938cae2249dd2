// When a worker would have a request's first token: pure arithmetic over what is known of it.
//
//   T = max(Q, R) + C
//   Q  until the prompts ahead of it are through
//   R  until computing may begin for what is read: from the device at once; from host memory, the
//      disk and the pool after the reads that are ahead on the same links, the pool's lookup, and
//      either the whole read or, layer by layer, as much of it as computing does not hide
//      (LayerwiseLoad, plan/kv_tiers.h); pages that a prompt ahead computes, with that prompt
//   C  the prompt's tokens that are not there, attention to those that are included
//
// Another worker's host memory is one more source, in the place of the pool: the worker's own
// tiers, and from where they end what that one has, which comes whole: computing begins after it.
//
// A worker can use its prefix to any of its tiers' depths: what is on the device alone, what is in
// host memory too, and so on, or nothing; the depth with the least cost is taken. So reading less
// and computing more wins where it is sooner.
//
// What the directory shows may be gone. With the odds p of each tier's part, in order of depth, the
// usable prefix ends with the first part that is missing:
//   P(ends before part j) = p_1 ... p_(j-1) (1 - p_j)
// A part of the device that is gone may still be in host memory, where the worker has that
// (CopyOutcomes, plan/route.h). The expected time is the mean over these, or a quantile.
// Source: sections 9.5.2 and 9.5.4.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "divisi/control/worker_rates.h"
#include "divisi/core/ids.h"
#include "divisi/core/result.h"
#include "divisi/plan/route.h"

namespace divisi {

enum class WorkerRole { kReplica, kPrefill, kDecode };
const char* RoleName(WorkerRole role);  // "replica", "prefill", "decode"
// Errors: kInvalidArgument with the names that there are.
Result<WorkerRole> ParseRole(const std::string& name);

// How much of a request's prefix a worker can have without computing it, in tokens from its
// beginning, as the directory shows it (kv/page_directory.h).
struct RoutePrefix {
  // Another worker, whose host memory has more of it than this one's own tiers.
  struct Peer {
    NodeId node;
    int64_t tokens = 0;  // From the prompt's beginning; 0: there is none
    double odds = 1;     // That what is shown there comes
    SharedLink link;     // From it, with those who read there now. No rate: nobody does
  };
  std::array<int64_t, 4> tokens{};         // [t]: in Tier t or a faster one
  std::array<double, 4> odds{1, 1, 1, 1};  // [t]: that a copy shown in Tier t is there
  int64_t promised = 0;                    // There, or being computed there
  Peer peer;
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
  std::array<Bytes, kSources>
      reading{};           // [t]: that it reads from Tier t for others, not yet there
  bool asks_pool = false;  // For what it lacks of a prompt, before it computes any of it
};

// What is made as short as can be.
//   kRequest  the request's own time to its first token
//   kTotal    that, and what it takes from others at the worker that computes its prompt:
//               W (d + a (Q + W))
//             W: its prompt's work there, in which nothing else advances; d: sequences that decode
//             there, each of which waits for W; a (Q + W): prompts that come before the worker has
//             caught up, at `a` a second, each of which waits for W too
//             So a hit on a busy worker is waited for where moving it would cost others more.
// Source: section 9.5.4, the two tasks that end later though one of them ends sooner.
enum class RouteObjective { kRequest, kTotal };
const char* ObjectiveName(RouteObjective objective);  // "request", "total"
// Errors: kInvalidArgument with the names that there are.
Result<RouteObjective> ParseObjective(const std::string& name);

// What estimates share.
struct RouteSetting {
  Bytes bytes_per_token;  // Of KV
  int layers = 1;         // 1: computing waits for the whole read
  RouteObjective objective = RouteObjective::kRequest;
  std::optional<double> quantile;  // Of the expected time; absent: the mean
  PerSecond arrivals;              // Prompts to a worker that computes them
  SharedLink pool;                 // No rate: only workers' own rates count
};

struct RouteEstimate {
  int64_t cached = 0;                    // Tokens that need no computing:
  std::array<int64_t, kSources> from{};  // [t]: of them, in Tier t,
  std::optional<NodeId> peer;            // whose kPeer's are,
  int64_t awaited = 0;                   // and those that a prompt ahead computes
  RouteTimes times;                      // Where all of it is there
  Seconds lookup, links, reading;  // R without layers: the pool's answer, reads ahead, its own
  Seconds work;                    // W
  double odds = 1;                 // That all of it is there
  Seconds expected;                // The mean or the quantile over what may be there
  Seconds delay;                   // Of others, with kTotal
  Seconds cost() const { return expected + delay; }
};

// Of the best depth. ready: when reading can begin, where something goes before it.
RouteEstimate EstimateRoute(int64_t prompt_tokens, const RouteWorker& worker,
                            const RouteSetting& setting, Seconds ready = Seconds(0));

}  // namespace divisi
