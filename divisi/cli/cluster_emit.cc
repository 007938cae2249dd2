#include "divisi/cli/cluster_emit.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "divisi/cli/cluster_file.h"
#include "divisi/core/format.h"
#include "divisi/core/ids.h"
#include "divisi/core/json.h"

namespace divisi {
namespace {

// Of what a card has beside weights, the part for KV: the rest is for activations and buffers.
constexpr double kKvShare = 0.9;
constexpr int64_t kMiB = int64_t{1} << 20;

// Workers of one role and one group of cards.
struct Entry {
  const char* role = "";
  int count = 0;
  const CardGroup* group = nullptr;
  MemoryNeed memory;
};

bool Apart(Scheme scheme) { return scheme == Scheme::kPdDirect || scheme == Scheme::kPdPool; }

// Those that fit: cards that cannot take their part stay idle.
std::vector<Entry> EntriesOf(const Scenario& scenario, const Candidate& chosen) {
  std::vector<Entry> entries;
  const auto add = [&](const char* role, int count, size_t group,
                       const std::vector<MemoryNeed>& memory) {
    if (count == 0 || group >= memory.size() || !memory[group].Fits()) return;
    entries.push_back({role, count, &scenario.groups[group], memory[group]});
  };
  const bool apart = Apart(chosen.scheme);
  for (size_t i = 0; i < scenario.groups.size(); ++i) {
    const int prefill = chosen.prefill_workers[i];
    const int rest = scenario.groups[i].Workers() - prefill;
    if (apart) {
      add("prefill", prefill, i, chosen.prefill_memory);
      add("decode", rest, i, chosen.decode_memory);
    } else {
      add("replica", prefill, i, chosen.decode_memory);
    }
  }
  return entries;
}

Result<void> CheckEntries(const std::vector<Entry>& entries) {
  int64_t workers = 0;
  for (const Entry& entry : entries) {
    workers += entry.count;
    if (entry.group->CardsPerWorker() == 1) continue;
    return Error{Code::kInvalidArgument,
                 Format("workers of {} cards ({}) cannot be started yet; plan with "
                        "tensor_parallel and expert_parallel 1",
                        entry.group->CardsPerWorker(), entry.group->name)};
  }
  if (workers == 0) {
    return Error{Code::kInvalidArgument, "no card holds its part of the chosen deployment"};
  }
  if (workers <= kMostClusterWorkers) return {};
  return Error{Code::kInvalidArgument,
               Format("the plan has {} workers; divisi up starts at most {} on a machine", workers,
                      kMostClusterWorkers)};
}

// Of what a card has beside weights; one MiB at least.
int64_t KvMib(const Entry& entry) {
  const Bytes rest = entry.memory.capacity - entry.memory.weights;
  return std::max<int64_t>(Scale(rest, kKvShare).value / kMiB, 1);
}

// What the gateway can promise where the least of the workers has no room for a sequence as long
// as the model allows; empty: all have.
std::string GatewayLimit(const std::vector<Entry>& entries, const ModelSpec& model) {
  const DataType type = model.stored_type == DataType::kF32 ? DataType::kF32 : DataType::kBf16;
  const int64_t page = model.KvBytesPerToken(type).value * kBlockTokens;
  int64_t context = model.max_positions;
  for (const Entry& entry : entries) {
    context = std::min(context, KvMib(entry) * kMiB / page * kBlockTokens);
  }
  if (context >= model.max_positions) return "";
  return Format(", args: [--max-model-len, \"{}\"]", std::max<int64_t>(context, kBlockTokens));
}

std::string LineOf(const Entry& entry, const Scenario& scenario) {
  std::string line = Format("  - {{role: {}, count: {}", entry.role, entry.count);
  if (entry.group->card.threads > 0) line += Format(", threads: {}", entry.group->card.threads);
  line += Format(", kv_memory: {} MiB", KvMib(entry));
  if (std::string_view(entry.role) != "prefill") {
    line += Format(", args: [--max-num-seqs, \"{}\"]",
                   static_cast<int64_t>(std::ceil(scenario.workload.decode_batch)));
  }
  return line + Format("}}  # {}, {}\n", entry.group->name, entry.group->host);
}

}  // namespace

Result<std::string> ClusterFileText(const Scenario& scenario, const Plan& plan,
                                    const std::string& model) {
  const Candidate& chosen = plan.chosen();
  const std::vector<Entry> entries = EntriesOf(scenario, chosen);
  RETURN_IF_ERROR(CheckEntries(entries));
  std::string text = Format("# {}: {} with {}\n", scenario.name, SchemeName(chosen.scheme),
                            DescribeCards(scenario, chosen));
  if (!plan.why.empty()) text += Format("# {}\n", plan.why.front());
  if (!chosen.meets_objective) text += "# It misses the objective: divisi plan says by what.\n";
  if (chosen.scheme == Scheme::kPdPool) text += "# States go directly, not through a pool.\n";
  text += Format("model: {}\n", Json(model).Dump());
  text += Format("gateway: {{policy: expected-ttft, disaggregate_from: auto{}}}\nworkers:\n",
                 GatewayLimit(entries, scenario.model));
  for (const Entry& entry : entries) text += LineOf(entry, scenario);
  return text;
}

}  // namespace divisi
