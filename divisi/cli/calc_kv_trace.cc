#include <algorithm>
#include <limits>

#include "divisi/cli/calc_cache.h"
#include "divisi/cli/load_trace.h"
#include "divisi/core/file.h"
#include "divisi/core/format.h"
#include "divisi/core/nearest.h"
#include "divisi/kv/trace_replay.h"

namespace divisi {
namespace {

constexpr const char* kFormula =
    "Each hash id of a Mooncake trace is one access, in file order, cold start, output ignored.\n"
    "lru      least recently used goes first            lfu  least often used goes first\n"
    "queue    of what the next --lookahead requests use the farthest goes last-needed first; "
    "before\n"
    "         that, what nobody waits for, by recency and frequency; blocks that are not full are\n"
    "         never kept\n"
    "optimum  farthest next use goes first, the whole future known (one tier)\n"
    "With --disk-blocks what leaves the first tier may go to the second:\n"
    "write-through  every block, as soon as it was made\n"
    "predict        what a queued request waits for, or what is likely to be used again, within a\n"
    "               token bucket of --write-rate blocks/s that holds --write-burst (half full at\n"
    "               the start)\n"
    "hit rate = hits / accesses; prefix hits: those behind hits only, which a request can use\n"
    "The tiers of a worker run the same code. Source: section 9.5.2; Belady 1966.";

constexpr size_t kMostTraceBytes = size_t{1} << 30;

struct Named {
  const char* name;
  ReplayPolicy policy;
};
constexpr Named kPolicies[] = {{"lru", ReplayPolicy::kLru},
                               {"lfu", ReplayPolicy::kLfu},
                               {"queue", ReplayPolicy::kQueue},
                               {"optimum", ReplayPolicy::kOptimum}};

Result<ReplayPolicy> PolicyNamed(const std::string& name) {
  std::vector<std::string> names;
  for (const Named& known : kPolicies) {
    if (name == known.name) return known.policy;
    names.push_back(known.name);
  }
  return Error{Code::kInvalidArgument,
               Format("--policy: there is no policy '{}'{}", name, DidYouMean(name, names, ""))};
}

Result<DiskWrites> WritesNamed(const std::string& name) {
  if (name == "write-through") return DiskWrites::kAll;
  if (name == "predict") return DiskWrites::kAdmitted;
  return Error{Code::kInvalidArgument,
               Format("--admission: '{}' is neither write-through nor predict", name)};
}

Result<std::vector<TraceRequest>> ReadRequests(const std::string& path) {
  if (path.empty()) {
    return Error{Code::kInvalidArgument, "--trace: give a Mooncake trace (JSON lines)"};
  }
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostTraceBytes));
  ASSIGN_OR_RETURN(const std::vector<PlannedRequest> planned, ReadTrace(text, path, {}));
  std::vector<TraceRequest> requests;
  bool has_blocks = false;
  for (const PlannedRequest& plan : planned) {
    TraceRequest& request = requests.emplace_back();
    request.at = plan.arrival;
    request.answer_tokens = plan.output_tokens;
    for (const PromptPiece& piece : plan.pieces) {
      if (!IsTraceBlock(piece)) continue;
      request.blocks.push_back(piece.stream);
      request.last_is_full = piece.tokens == kTraceBlockTokens;
    }
    has_blocks = has_blocks || !request.blocks.empty();
  }
  if (!has_blocks) {
    return Error{Code::kInvalidArgument,
                 Format("{}: no hash_ids; only traces in Mooncake's format have them", path)};
  }
  return requests;
}

std::vector<double> RowOf(const ReplayResult& replay) {
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  return {number(replay.Hits()),
          number(replay.Hits()) / number(replay.accesses),
          number(replay.host_hits),
          number(replay.disk_hits),
          number(replay.prefix_hits),
          number(replay.tiers.host_writes),
          number(replay.tiers.disk_writes),
          number(replay.tiers.promotions)};
}

Result<ReplayOptions> OptionsOf(const CalcValues& in) {
  ReplayOptions options;
  ASSIGN_OR_RETURN(options.policy, PolicyNamed(in.Text("policy")));
  ASSIGN_OR_RETURN(options.disk_writes, WritesNamed(in.Text("admission")));
  options.disk_blocks = static_cast<int64_t>(in.Count("disk-blocks"));
  options.lookahead = static_cast<int64_t>(in.Count("lookahead"));
  options.budget = {in.GetPerSecond("write-rate").value, in.Count("write-burst")};
  if (options.disk_blocks > 0 && options.policy == ReplayPolicy::kOptimum) {
    return Error{Code::kInvalidArgument,
                 "--disk-blocks: the optimum is of one tier; choose another --policy"};
  }
  return options;
}

Result<CalcResult> Run(const CalcValues& in) {
  ASSIGN_OR_RETURN(ReplayOptions options, OptionsOf(in));
  ASSIGN_OR_RETURN(const std::vector<TraceRequest> requests, ReadRequests(in.Text("trace")));
  CalcTable table{"caches",
                  "Caches, by blocks of the first tier",
                  {},
                  {{"hits", 0, CalcUnit::kCount, "hits"},
                   {"hit_rate", 0, CalcUnit::kCount, "hit rate"},
                   {"host_hits", 0, CalcUnit::kCount, "in host"},
                   {"disk_hits", 0, CalcUnit::kCount, "on disk"},
                   {"prefix_hits", 0, CalcUnit::kCount, "prefix hits"},
                   {"host_writes", 0, CalcUnit::kCount, "host writes"},
                   {"disk_writes", 0, CalcUnit::kCount, "disk writes"},
                   {"promotions", 0, CalcUnit::kCount, "disk to host"}},
                  {}};
  int64_t accesses = 0;
  for (const double blocks : in.Counts("blocks")) {
    options.host_blocks = static_cast<int64_t>(blocks);
    const ReplayResult replay = ReplayTrace(requests, options);
    accesses = replay.accesses;
    table.row_names.push_back(Format("{}", options.host_blocks));
    table.rows.push_back(RowOf(replay));
  }
  CalcResult result;
  result.figures = {FigureOf("requests", static_cast<double>(requests.size()), "requests"),
                    FigureOf("accesses", static_cast<double>(accesses), "accesses"),
                    FigureOf("span", requests.back().at, "from the first arrival to the last")};
  result.tables.push_back(std::move(table));
  return result;
}

}  // namespace

CalcTopic KvTraceTopic() {
  return {
      "kv-trace",
      "Replay a recorded load against a cache of one or two tiers: hits and writes",
      kFormula,
      {{"trace", CalcUnit::kText, "", "Mooncake trace, JSON lines with hash_ids"},
       {"blocks", CalcUnit::kCounts, "1000,10000,30000,50000",
        "Blocks of the first tier; one row each", CalcLimit::kOneOrMore},
       {"policy", CalcUnit::kText, "queue", "lru, lfu, queue or optimum"},
       {"lookahead", CalcUnit::kCount, "512", "Requests of the queue that are known",
        CalcLimit::kWhole},
       {"disk-blocks", CalcUnit::kCount, "0", "Blocks of the second tier", CalcLimit::kWhole},
       {"admission", CalcUnit::kText, "predict", "To the second: predict or write-through"},
       {"write-rate", CalcUnit::kPerSecond, "11.9", "Blocks per second that its endurance allows"},
       {"write-burst", CalcUnit::kCount, "9000", "Blocks that may be saved up", CalcLimit::kWhole}},
      Run};
}

}  // namespace divisi
