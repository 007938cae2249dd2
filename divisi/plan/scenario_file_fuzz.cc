// Any text as a scenario: it is refused with a message, or gives candidates whose figures are
// numbers that are not negative, in bounded time.
#include <string_view>

#include "divisi/core/check.h"
#include "divisi/plan/planner.h"
#include "divisi/plan/scenario_file.h"

namespace divisi {
namespace {

void CheckCandidate(const Candidate& candidate) {
  CHECK(candidate.throughput.value >= 0, "{}", candidate.throughput.value);
  CHECK(candidate.ttft.value >= 0 && candidate.TtftAtArrival().value >= 0, "{}",
        candidate.ttft.value);
  CHECK(!candidate.tpot || candidate.tpot->value >= 0, "{}", candidate.tpot->value);
  CHECK(candidate.slo_share >= 0 && candidate.slo_share <= 1, "{}", candidate.slo_share);
  CHECK(candidate.transfer.value >= 0, "{}", candidate.transfer.value);
  CHECK(candidate.cost_per_1000 >= 0 && candidate.cost_per_1000_at_saturation >= 0, "{}",
        candidate.cost_per_1000);
  for (const auto* pool : {&candidate.prefill_memory, &candidate.decode_memory}) {
    for (const MemoryNeed& need : *pool) {
      CHECK(need.weights.value >= 0 && need.state.value >= 0 && need.buffers.value >= 0, "{}",
            need.Total().value);
    }
  }
  CHECK(candidate.fits || !candidate.meets_objective);
}

}  // namespace
}  // namespace divisi

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace divisi;
  static const Catalog catalog = Catalog::BuiltIn();
  const auto tree = ParseYaml({reinterpret_cast<const char*>(data), size}, "f.yaml");
  if (!tree) return 0;
  const auto no_config = [](const std::string&) -> Result<ModelSpec> {
    return Error{Code::kNotFound, "no files here"};
  };
  const auto scenario = ReadScenario(*tree, "f.yaml", {catalog, no_config});
  if (!scenario) {
    CHECK(scenario.error().message.starts_with("f.yaml"), "{}", scenario.error().message);
    return 0;
  }
  // ReadScenario has checked it: nothing is left to refuse.
  const auto candidates = CompareCandidates(*scenario);
  CHECK(candidates && !candidates->empty());
  for (const Candidate& candidate : *candidates) CheckCandidate(candidate);
  return 0;
}
