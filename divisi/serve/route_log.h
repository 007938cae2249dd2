// The last choices of workers that a gateway made, each with all that it compared: what `divisi
// explain-route` asks for. Texts and JSON are made when they are asked for.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "divisi/control/dispatcher.h"
#include "divisi/core/json.h"
#include "divisi/serve/foreign_engines.h"

namespace divisi {

class RouteLog {
 public:
  // Each choice holds some 300 bytes for each candidate: with 64 of them 5 MB in all.
  static constexpr size_t kMost = 256;
  using Name = std::function<std::string(NodeId)>;  // Of a worker, for people

  void Add(RouteNote note);
  // What its client calls a request, for Of. Of one that is not in the log any more: nothing.
  void Label(uint64_t request, std::string_view label);

  // What engines that are only followed hold of its prompt. Before its first choice or after.
  void HeldElsewhere(uint64_t request, std::vector<ForeignPrefix> engines);

  // An answer of as many, each of 64 candidates, has about 1 MB.
  static constexpr size_t kMostShown = 32;
  // The last ones, at most `count` and kMostShown, the newest first: a list of RouteJson's, which
  // also have "request" (the label, "" where there is none), "attempt", "seconds_ago" and
  // "elsewhere" [{"engine", "tokens", "tier"}].
  Json Last(size_t count, const Name& name, Seconds now) const;
  // The attempts of a client's request, the newest first, as many. An empty list: it is not in the
  // log, or has no label.
  Json Of(std::string_view label, const Name& name, Seconds now) const;

 private:
  struct Entry {
    RouteNote note;
    std::string label;
  };
  Json EntryJson(const Entry& entry, const Name& name, Seconds now) const;

  std::deque<Entry> entries_;  // The newest last
  std::map<uint64_t, std::vector<ForeignPrefix>> elsewhere_;  // Of the last 4 * kMost requests
};

// {"prompt_tokens", "candidates": [...]}, the chosen candidate first. Of each:
//   "way" ("whole", "apart"), "worker", "prefill" (a name, or null), "chosen",
//   "queue_seconds" Q, "ready_seconds" R, "compute_seconds" C, "ttft_seconds" T;
//   of R "lookup_seconds", "links_seconds" (reads ahead) and "reading_seconds" (without layers);
//   of C "transfer_seconds", "step_seconds";
//   "cached_tokens", of which "device_tokens", "host_tokens", "disk_tokens", "pool_tokens" and
//   "awaited_tokens" (a prompt ahead computes them); "present_tokens" (at the decode worker);
//   "odds", "expected_seconds", "work_seconds", "delay_seconds", "cost_seconds", "requests"
Json RouteJson(const RouteChoice& choice, int64_t prompt_tokens, const RouteLog::Name& name);

}  // namespace divisi
