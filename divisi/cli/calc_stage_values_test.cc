// The figures of sections 9.1, 9.2 and those of deployments in 9.7: by the topic that computes
// them, or by the plan of examples/chapter9/eight-cards.yaml.
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>

#include "divisi/cli/calc.h"
#include "divisi/cli/calc_read.h"
#include "divisi/core/file.h"
#include "divisi/plan/planner.h"
#include "divisi/plan/scenario_file.h"
#include "divisi/plan/scenario_value.h"

namespace divisi {
namespace {

using Flags = std::map<std::string, std::string>;

struct Value {
  const char* name;     // As the specification lists it.
  const char* printed;  // As its text prints it; "4.9e2" has two digits.
  double computed;      // Unrounded.
  // Allowed between what is printed and what is computed, in units of the last digit: 0.5, or 1
  // where the text has rounded its own intermediate figures.
  double digits = 0.5;
};

// Both sides of every comparison.
void ExpectAsPrinted(const Value& value, double got) {
  EXPECT_NEAR(got, value.computed, 1e-9 * std::abs(value.computed));
  const std::string printed = value.printed;
  const size_t e = printed.find('e');
  const size_t point = printed.find('.');
  const double decimals =
      point == std::string::npos ? 0 : static_cast<double>(std::min(e, printed.size()) - point - 1);
  const double power = e == std::string::npos ? 0 : std::stod(printed.substr(e + 1));
  const double allowed = value.digits * std::pow(10, power - decimals);
  // And what the rounding of a double may add.
  EXPECT_NEAR(got, std::stod(printed), allowed + 1e-12 * std::abs(got));
}

std::string TestName(std::string name) {
  for (char& c : name) {
    if (c == '/' || c == '.') c = '_';
  }
  return name;
}

// By a topic.

struct CalcValue {
  Value value;
  double unit;  // What the figure is divided by: 1e-3 for ms, 1 << 20 for MiB.
  const char* topic;
  const char* where;  // "figure", or "table/row/column". A name and unit as in the JSON.
  Flags flags;
};

void PrintTo(const CalcValue& entry, std::ostream* out) { *out << entry.value.name; }

constexpr double kMs = 1e-3, kUs = 1e-6, kGiga = 1e9, kTera = 1e12;
constexpr double kKiB = 0x1p10, kMiB = 0x1p20, kGiB = 0x1p30;
const Flags kLatent = {{"state-model", "deepseek-v3"}};
const Flags kLatent50 = {{"state-model", "deepseek-v3"}, {"bandwidth", "50GB/s"}};
const Flags kLatent100GbE = {{"state-model", "deepseek-v3"}, {"bandwidth", "100Gbit/s"}};
const Flags k100GbE = {{"bandwidth", "100Gbit/s"}};
const Flags kAdded = {{"state-model", "deepseek-v3"}, {"query-work", "added"}};
const Flags kEightA100 = {{"cards", "8"}, {"other-cards", "0"}};
const Flags kHit = {{"cached-tokens", "6144"}};
const Flags kBrief = {{"output-tokens", "129"}};
const Flags kLatentOver50 = {{"state-model", "deepseek-v3"}, {"link", "50GB/s"}};
const Flags kFourGroups = {{"model", "qwen3-235b-a22b"}, {"copies", "4"}};

const CalcValue kCalcValues[] = {
    {{"9.1.1/kv_235b_tp2ep4_GiB", "5.875", 5.875},
     kGiB,
     "kv-size",
     "all_copies_bytes",
     kFourGroups},
    {{"9.2.2/kv_tok_KiB", "144", 144}, kKiB, "kv-size", "token_bytes"},
    {{"9.2.2/kv_8192_bytes", "1207959552", 1207959552}, 1, "kv-size", "prompt_bytes"},
    {{"9.2.2/mla_tok", "70272", 70272}, 1, "kv-size", "token_bytes", kLatent},
    {{"9.2.2/mla_8192_bytes", "575668224", 575668224}, 1, "kv-size", "prompt_bytes", kLatent},
    {{"9.2.2/mla_expanded_MiB", "4.77", 4.765625},
     kMiB,
     "kv-size",
     "expanded_token_bytes",
     kLatent},
    {{"9.2.2/mla_expanded_ratio", "71", 71.11111111111111},
     1,
     "kv-size",
     "expanded_ratio",
     kLatent},
    {{"9.7.2/pool64_objs", "56", 56}, 1, "kv-size", "prompts_in_memory"},
    {{"9.7.2/pool64_mla", "119", 119}, 1, "kv-size", "prompts_in_memory", kLatent},

    {{"9.2.2/t_payload_ms", "48.31838208", 48.31838208}, kMs, "kv-transfer", "payload_seconds"},
    {{"9.2.2/mla_25_ms", "23.02672896", 23.02672896},
     kMs,
     "kv-transfer",
     "payload_seconds",
     kLatent},
    {{"9.2.2/mla_50_ms", "11.5", 11.51336448}, kMs, "kv-transfer", "payload_seconds", kLatent50},
    {{"9.2.2/kv8_GBps", "9.7", 9.663676416},
     kGiga,
     "kv-transfer",
     "stream/8/needed_bytes_per_second"},
    {{"9.2.2/kv16_GBps", "19.3", 19.327352832},
     kGiga,
     "kv-transfer",
     "stream/16/needed_bytes_per_second"},
    {{"9.2.2/backlog_GBps", "6.8", 6.827352831999999},
     kGiga,
     "kv-transfer",
     "stream/16/growth_bytes_per_second",
     k100GbE},
    {{"9.2.2/100gbe_ms", "96.6", 96.63676416}, kMs, "kv-transfer", "payload_seconds", k100GbE},
    {{"9.2.2/mla100_ms", "46.1", 46.05345792},
     kMs,
     "kv-transfer",
     "payload_seconds",
     kLatent100GbE},

    {{"9.2.3/prefill_TFLOP", "133.6", 133.591907434496}, kTera, "stage-rates", "prefill_flops"},
    {{"9.2.3/weights_read_GB", "15.1", 15.13619456}, kGiga, "stage-rates", "step_weights_bytes"},
    {{"9.2.3/decode_TFLOP", "0.65", 0.648640724992}, kTera, "stage-rates", "step_flops"},
    {{"9.2.3/decode_kv_GB", "41.1", 41.070624768}, kGiga, "stage-rates", "step_state_bytes"},
    {{"9.2.3/kv_end_GB", "43.5", 43.486543872}, kGiga, "stage-rates", "end_state_bytes"},
    {{"9.2.3/kv_end_plus_weights_GB", "59.9", 59.867398144},
     kGiga,
     "stage-rates",
     "end_memory_bytes"},
    {{"9.2.3/a100_dP", "0.856", 0.856358380990359},
     1,
     "stage-rates",
     "prefill/A100 80GB SXM/busy_seconds"},
    {{"9.2.3/h20_dP", "1.805", 1.8052960464121082},
     1,
     "stage-rates",
     "prefill/H20 SXM5 96GB/busy_seconds"},
    {{"9.2.3/a100_dD", "1.764", 1.764216006371751},
     1,
     "stage-rates",
     "decode/A100 80GB SXM/busy_seconds"},
    {{"9.2.3/h20_dD", "0.878", 0.878231552}, 1, "stage-rates", "decode/H20 SXM5 96GB/busy_seconds"},
    {{"9.2.3/a100_rP", "9566", 9566.088429620013},
     1,
     "stage-rates",
     "prefill/A100 80GB SXM/tokens_per_second"},
    {{"9.2.3/h20_rP", "4538", 4537.759896101801},
     1,
     "stage-rates",
     "prefill/H20 SXM5 96GB/tokens_per_second"},
    {{"9.2.3/a100_rD", "580", 580.427791325812},
     1,
     "stage-rates",
     "decode/A100 80GB SXM/calls_per_second"},
    {{"9.2.3/h20_rD", "1166", 1165.9795160718616},
     1,
     "stage-rates",
     "decode/H20 SXM5 96GB/calls_per_second"},
    {{"9.2.3/a100_step_ms", "55.1", 55.131750199117214},
     kMs,
     "stage-rates",
     "decode/A100 80GB SXM/step_seconds"},
    {{"9.2.3/h20_step_ms", "27.4", 27.444736000000002},
     kMs,
     "stage-rates",
     "decode/H20 SXM5 96GB/step_seconds"},
    {{"9.2.3/piggy_tokens_a100", "4.9e2", 487.6198481054613},
     1,
     "stage-rates",
     "together/A100 80GB SXM/chunk_tokens"},
    {{"9.2.3/piggy_tokens_h20", "85", 84.76227280088656},
     1,
     "stage-rates",
     "together/H20 SXM5 96GB/chunk_tokens"},
    {{"9.2.3/piggy_chunks", "17", 17}, 1, "stage-rates", "together/A100 80GB SXM/chunks"},
    {{"9.2.3/piggy_ttft_s", "0.94", 0.9372397533849927},
     1,
     "stage-rates",
     "together/A100 80GB SXM/first_token_seconds"},
    {{"9.2.3/mla_extra_flops_step", "2046820352", 2046820352},
     1,
     "stage-rates",
     "query_flops",
     kLatent},
    {{"9.2.3/mla_extra_us", "27.7", 27.65973448648649},
     kUs,
     "stage-rates",
     "query/H20 SXM5 96GB/call_seconds",
     kLatent},
    {{"9.2.3/mla_extra_1024_ms", "28.3", 28.323568114162164},
     kMs,
     "stage-rates",
     "query/H20 SXM5 96GB/request_seconds",
     kLatent},
    {{"9.2.3/mla_dD", "0.907", 0.9065551201141622},
     1,
     "stage-rates",
     "decode/H20 SXM5 96GB/busy_seconds",
     kAdded},
    {{"9.2.3/mla_extra_limit_us", "258", 258.4234285714285},
     kUs,
     "stage-rates",
     "query/H20 SXM5 96GB/spare_call_seconds",
     kAdded},
    {{"9.2.4/a100_dP", "0.238", 0.23788309036635896},
     1,
     "stage-rates",
     "prefill/A100 80GB SXM/busy_seconds",
     kHit},
    {{"9.2.4/h20_D_129", "9.46", 9.465199565782077, 1},
     1,
     "stage-rates",
     "decode/H20 SXM5 96GB/requests_per_second",
     kBrief},

    {{"9.2.3/co_8a100", "3.05", 3.052765851097576},
     1,
     "pd-split",
     "schemes/replicas/throughput_per_second",
     kEightA100},
    {{"9.2.3/pd_8a100", "2.83", 2.8341200748330664},
     1,
     "pd-split",
     "throughput_per_second",
     kEightA100},
    {{"9.2.3/pd_8a100_P", "3", 3}, 1, "pd-split", "prefill_cards", kEightA100},
    {{"9.2.3/mix_8a100", "4.50", 4.496749913489078},
     1,
     "pd-split",
     "schemes/replicas-chunked/throughput_per_second",
     kEightA100},
    {{"9.2.3/mix_hetero", "4.17", 4.1661141727409525},
     1,
     "pd-split",
     "schemes/replicas-chunked/throughput_per_second"},
    {{"9.2.3/co_hetero", "3.02", 3.0169582422948773},
     1,
     "pd-split",
     "schemes/replicas/throughput_per_second"},
    {{"9.2.3/pd_hetero", "4.55", 4.554607484655709}, 1, "pd-split", "throughput_per_second"},
    {{"9.2.3/pd_hetero_iA", "4", 4}, 1, "pd-split", "prefill_cards"},
    {{"9.2.3/pd_hetero_jH", "0", 0}, 1, "pd-split", "prefill_other_cards"},
    {{"9.2.3/link_rate", "20.7", 20.6960572136773}, 1, "pd-split", "link_per_second"},
    {{"9.2.3/pd_swapped", "2.22", 2.2157030742684576},
     1,
     "pd-split",
     "grid/0+4/throughput_per_second"},
    {{"9.2.3/link_rate_mla25", "43.4", 43.42779218607696},
     1,
     "pd-split",
     "link_per_second",
     kLatent},
    {{"9.2.3/link_rate_mla50", "86.9", 86.85558437215391},
     1,
     "pd-split",
     "link_per_second",
     kLatentOver50},
    {{"9.2.3/link_floor_gqa_GBps", "5.5", 5.5017816167005575},
     kGiga,
     "pd-split",
     "link_needed_bytes_per_second"},
    {{"9.2.3/link_floor_mla_GBps", "2.6", 2.6219428017088595},
     kGiga,
     "pd-split",
     "link_needed_bytes_per_second",
     kLatent},
    {{"9.2.3/mla_D_rate", "4.41", 4.412307548929051},
     1,
     "pd-split",
     "grid/4+0/decode_per_second",
     kAdded},
    {{"9.2.3/fig10_3A0H", "3.50", 3.5032062120190477},
     1,
     "pd-split",
     "grid/3+0/throughput_per_second"},
    {{"9.2.3/fig10_4A1H", "3.42", 3.415955613491782},
     1,
     "pd-split",
     "grid/4+1/throughput_per_second"},
    {{"9.2.4/pd", "5.69", 5.688255514588936}, 1, "pd-split", "throughput_per_second", kHit},
    {{"9.2.4/iA", "2", 2}, 1, "pd-split", "prefill_cards", kHit},
    {{"9.2.4/jH", "0", 0}, 1, "pd-split", "prefill_other_cards", kHit},
    {{"9.2.4/pd_129", "6.33", 6.33271892172674}, 1, "pd-split", "throughput_per_second", kBrief},
    {{"9.2.4/iA_129", "4", 4}, 1, "pd-split", "prefill_cards", kBrief},
    {{"9.2.4/jH_129", "3", 3}, 1, "pd-split", "prefill_other_cards", kBrief},
    {{"9.2.4/co_129", "5.84", 5.836449411007485},
     1,
     "pd-split",
     "schemes/replicas/throughput_per_second",
     kBrief},
};

class CalcStageValuesTest : public testing::TestWithParam<CalcValue> {};

TEST_P(CalcStageValuesTest, Matches) {
  const CalcValue& entry = GetParam();
  static const Catalog catalog = Catalog::BuiltIn();
  const auto result = RunCalc(entry.topic, catalog, entry.flags);
  ASSERT_TRUE(result) << result.error().message;
  ExpectAsPrinted(entry.value, Read(CalcJson(entry.topic, *result), entry.where) / entry.unit);
}

INSTANTIATE_TEST_SUITE_P(Chapter, CalcStageValuesTest, testing::ValuesIn(kCalcValues),
                         [](const auto& info) { return TestName(info.param.value.name); });

// By the plan of the example.

struct Planned {
  const Scenario& scenario;
  const std::vector<Candidate>& candidates;

  const Candidate& Of(Scheme scheme) const {
    for (const Candidate& candidate : candidates) {
      if (candidate.scheme == scheme) return candidate;
    }
    ADD_FAILURE() << "no candidate " << SchemeName(scheme);
    return candidates.front();
  }
  const Candidate& chosen() const { return candidates.front(); }
};

struct PlanValue {
  Value value;
  std::vector<const char*> settings;  // As --set takes them.
  double (*read)(const Planned& plan);
};

void PrintTo(const PlanValue& entry, std::ostream* out) { *out << entry.value.name; }

double ClearedAt(const Candidate& candidate) {
  return candidate.backlog.cleared ? candidate.backlog.cleared->value : std::nan("");
}

constexpr const char* kCached = "workload.cached_prefill_tokens=6144";
constexpr const char* kLong = "workload.output_tokens=4097";
constexpr const char* kNineTenths = "efficiency=0.45";

const PlanValue kPlanValues[] = {
    {{"9.7.2/active40", "40.5", 40.5},
     {},
     [](const Planned& plan) { return double(plan.chosen().decode_memory[1].state.value) / kGiB; }},
    {{"9.7.2/d_mem_GiB", "56.9", 56.880859375},
     {},
     [](const Planned& plan) {
       return double(plan.chosen().decode_memory[1].Total().value) / kGiB;
     }},
    {{"9.7.2/pool_link", "10.3", 10.34802860683865},
     {},
     [](const Planned& plan) { return plan.Of(Scheme::kPdPool).link_rate->value; }},
    {{"9.7.2/d90", "4.1", 4.099146736190138},
     {kNineTenths},
     [](const Planned& plan) { return plan.Of(Scheme::kPdDirect).decode_rate->value; }},
    {{"9.7.2/d90_end", "68.5", 68.4164076776224, 1},
     {kNineTenths},
     [](const Planned& plan) { return ClearedAt(plan.Of(Scheme::kPdDirect)); }},
    {{"9.7.3/co_hit", "4.90", 4.897052936781153},
     {kCached},
     [](const Planned& plan) { return plan.Of(Scheme::kReplicas).throughput.value; }},
    {{"9.7.3/end_co", "35.1", 35.05273714297537},
     {kCached},
     [](const Planned& plan) { return ClearedAt(plan.Of(Scheme::kReplicas)); }},
    // The split that is best without the hit, kept.
    {{"9.7.3/end_pd44", "43.2", 43.187703016754355},
     {kCached},
     [](const Planned& plan) {
       return ClearedAt(Evaluator(plan.scenario).Evaluate(Scheme::kPdDirect, {4, 0}));
     }},
    {{"9.7.3/end_pd26", "26.0", 25.994475858352747},
     {kCached},
     [](const Planned& plan) { return ClearedAt(plan.chosen()); }},
    {{"9.7.3/long", "1.26", 1.2596362899632765},
     {kLong},
     [](const Planned& plan) { return plan.Of(Scheme::kPdDirect).throughput.value; }},
    {{"9.7.3/long_iA", "2", 2},
     {kLong},
     [](const Planned& plan) { return double(plan.Of(Scheme::kPdDirect).prefill_workers[0]); }},
    {{"9.7.3/long_groups_steady", "3", 3},
     {kLong},
     [](const Planned& plan) { return double(*plan.Of(Scheme::kPdDirect).copies_to_hold); }},
    {{"9.7.3/long_groups_drain", "4", 4},
     {kLong},
     [](const Planned& plan) { return double(*plan.Of(Scheme::kPdDirect).copies_to_clear); }},
};

class PlanStageValuesTest : public testing::TestWithParam<PlanValue> {};

TEST_P(PlanStageValuesTest, Matches) {
  const PlanValue& entry = GetParam();
  static const Catalog catalog = Catalog::BuiltIn();
  const std::string path = std::string(DIVISI_SOURCE_DIR) + "/examples/chapter9/eight-cards.yaml";
  const auto text = ReadFile(path, size_t{1} << 20);
  ASSERT_TRUE(text) << text.error().message;
  auto tree = ParseYaml(*text, path);
  ASSERT_TRUE(tree) << tree.error().message;
  for (const char* setting : entry.settings) ASSERT_TRUE(SetScenarioValue(*tree, setting));
  const auto scenario = ReadScenario(*tree, path, {catalog, {}});
  ASSERT_TRUE(scenario) << scenario.error().message;
  const auto candidates = CompareCandidates(*scenario);
  ASSERT_TRUE(candidates) << candidates.error().message;
  ExpectAsPrinted(entry.value, entry.read({*scenario, *candidates}));
}

INSTANTIATE_TEST_SUITE_P(Chapter, PlanStageValuesTest, testing::ValuesIn(kPlanValues),
                         [](const auto& info) { return TestName(info.param.value.name); });

}  // namespace
}  // namespace divisi
