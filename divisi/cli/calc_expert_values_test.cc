// Every figure of sections 9.3.2 to 9.4.3 of the specification, by the topic that computes it.
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>

#include "divisi/cli/calc.h"
#include "divisi/cli/calc_read.h"

namespace divisi {
namespace {

using Flags = std::map<std::string, std::string>;

struct ChapterValue {
  const char* name;     // As the specification lists it.
  const char* printed;  // As its text prints it; "" where it does not.
  double computed;      // Unrounded.
  double unit;          // What the figure is divided by: 1e-3 for ms, 1 << 20 for MiB.
  const char* topic;
  const char* where;  // "figure", or "table/row/column". A name and unit as in the JSON.
  Flags flags;
};

void PrintTo(const ChapterValue& value, std::ostream* out) { *out << value.name; }

constexpr double kMs = 1e-3, kUs = 1e-6, kKiB = 0x1p10, kMiB = 0x1p20, kGiB = 0x1p30;
const Flags kAmx = {{"cpu-compute", "21.3TFLOP/s"}};
const Flags kMla = {{"state", "575668224B"}};
const Flags kNic = {{"link", "50GB/s"}};
const Flags k50 = {{"bandwidth", "50GB/s"}};

const ChapterValue kValues[] = {
    {"9.3.2/expert_MiB", "36", 36, kMiB, "expert-path", "expert_weights_bytes"},
    {"9.3.2/cpu_1_ms", "1.46", 1.4579241890909092, kMs, "expert-path", "paths/1/cpu_seconds"},
    {"9.3.2/gpu_1_ms", "12.5", 12.508006951511254, kMs, "expert-path", "paths/1/gpu_seconds"},
    {"9.3.2/avx_128_ms", "22.2", 22.22592512, kMs, "expert-path", "paths/128/cpu_seconds"},
    {"9.3.2/amx_128_ms", "2.57", 2.5658635538028167, kMs, "expert-path", "paths/128/cpu_seconds",
     kAmx},
    {"9.3.2/gpu_128_ms", "12.5", 12.508006951511254, kMs, "expert-path", "paths/128/gpu_seconds"},
    {"9.3.2/cross_avx", "72", 72, 1, "expert-path", "crossover_rows"},
    {"9.3.2/cross_amx", "689", 689, 1, "expert-path", "crossover_rows", kAmx},

    {"9.3.3/layer_GiB", "4.5", 4.5, kGiB, "expert-reuse", "layer_weights_bytes"},
    {"9.3.3/resident32_GiB", "106", 105.75, kGiB, "expert-reuse", "resident_weights_bytes"},
    {"9.3.3/EU", "126", 125.94234926707806, 1, "expert-reuse", "expected_experts"},
    {"9.3.3/EU_GiB", "4.43", 4.427660716420713, kGiB, "expert-reuse",
     "routing/random/weights_read_bytes"},
    {"9.3.3/uniform_read_ms", "22.0", 21.962900945454546, kMs, "expert-reuse",
     "routing/even/read_seconds"},
    {"9.3.3/hot_read_ms", "1.37", 1.3726813090909091, kMs, "expert-reuse",
     "routing/hot/read_seconds"},
    {"9.3.3/assign_GFLOP", "19.3", 19.327352832, 1e9, "expert-reuse", "compute_flops"},

    {"9.3.4/pipe_ms", "14", 14, kMs, "expert-pipeline", "pipeline_seconds"},
    {"9.3.4/af_payload_KiB", "576", 576, kKiB, "af-transfer", "step_payload_bytes"},
    {"9.3.4/af_step_us", "384", 383.59296, kUs, "af-transfer", "step_seconds"},
    {"9.3.4/af_prefill_GiB", "4.5", 4.5, kGiB, "af-transfer", "prefill_payload_bytes"},
    {"9.3.4/af_prefill_ms", "193", 193.27352832, kMs, "af-transfer", "prefill_payload_seconds"},
    {"9.3.4/alpha_gqa_25_us", "680", 680.2082974647888, kUs, "af-transfer",
     "break_even_launch_seconds"},
    {"9.3.4/alpha_gqa_50_us", "340", 340.1041487323944, kUs, "af-transfer",
     "break_even_launch_seconds", k50},
    {"9.3.4/alpha_mla_25_us", "324", 323.9878309859155, kUs, "af-transfer",
     "break_even_launch_seconds", kMla},
    {"9.3.4/alpha_mla_50_us",
     "162",
     161.99391549295774,
     kUs,
     "af-transfer",
     "break_even_launch_seconds",
     {{"state", "575668224B"}, {"bandwidth", "50GB/s"}}},
    {"9.3.4/alpha_mla_exact_ns", "323987.8309859155", 323987.83098591544, 1e-9, "af-transfer",
     "break_even_launch_seconds", kMla},
    {"9.3.4/af_1024_ms", "393", 392.79919104, kMs, "af-transfer", "request_seconds"},
    {"9.3.4/af_vs_pd", "8.1", 8.129394531250002, 1, "af-transfer", "request_to_state"},
    {"9.3.4/af_vs_mla", "17", 17.058401639344265, 1, "af-transfer", "request_to_state", kMla},

    {"9.4.1/even_us", "4.9", 4.883604414796847, kUs, "expert-skew", "even_card_seconds"},
    {"9.4.1/hot_us", "39.1", 39.068835318374774, kUs, "expert-skew", "hot_card_seconds"},
    {"9.4.1/ep8_rows", "1108", 1108.329411764706, 1, "expert-skew", "ep/8/rows"},
    {"9.4.1/ep8_ratio", "", 1.0823529411764707, 1, "expert-skew", "ep/8/ratio"},
    {"9.4.1/ep32_rows", "349", 349.36470588235295, 1, "expert-skew", "ep/32/rows"},
    {"9.4.1/ep32_ratio", "", 1.3647058823529412, 1, "expert-skew", "ep/32/ratio"},
    {"9.4.1/ep256_rows", "128", 128, 1, "expert-skew", "ep/256/rows"},
    {"9.4.1/ep256_ratio", "", 4, 1, "expert-skew", "ep/256/ratio"},
    {"9.4.1/even", "0.827", 0.8273639812734991, kMs, "expert-skew", "exchange/even/total_seconds"},
    {"9.4.1/hot", "2.068", 2.068409953183748, kMs, "expert-skew", "exchange/hot/total_seconds"},
    {"9.4.1/one_link", "2.841", 2.840629901273499, kMs, "expert-skew",
     "exchange/even, one link/total_seconds"},
    {"9.4.1/nvlink", "0.577", 0.5771018642948589, kMs, "expert-skew",
     "exchange/hot, NVLink/total_seconds"},
    {"9.4.1/fp8", "1.649", 1.648979553183748, kMs, "expert-skew",
     "exchange/hot, narrow dispatch/total_seconds"},

    {"9.4.2/all_layers_MiB", "3384", 3384, kMiB, "expert-replicas", "all_layers_bytes"},
    {"9.4.2/bytes_before_MB", "921", 920.649728, 1e6, "expert-replicas", "traffic_before_bytes"},
    {"9.4.2/saving_bytes", "402784256", 402784256, 1, "expert-replicas", "traffic_saved_bytes"},
    {"9.4.2/before_ms", "0.55", 0.5496416286567164, kMs, "expert-replicas", "before_seconds"},
    {"9.4.2/after_ms", "0.309", 0.30917341611940297, kMs, "expert-replicas", "after_seconds"},
    {"9.4.2/copy_nvlink_ms", "0.62220256", 0.62220256, kMs, "expert-replicas", "copy_seconds"},
    {"9.4.2/nmin_nvlink", "3", 3, 1, "expert-replicas", "pay_back_batches"},
    {"9.4.2/net16_nvlink_ms", "3.2", 3.225288840597015, kMs, "expert-replicas",
     "net/16/saving_seconds"},
    {"9.4.2/net64_nvlink_ms", "14.8", 14.76776304238806, kMs, "expert-replicas",
     "net/64/saving_seconds"},
    {"9.4.2/copy_nic_ms", "5.31982304", 5.31982304, kMs, "expert-replicas", "copy_seconds", kNic},
    {"9.4.2/nmin_nic", "23", 23, 1, "expert-replicas", "pay_back_batches", kNic},
    {"9.4.2/net16_nic_ms", "-1.5", -1.4723316394029853, kMs, "expert-replicas",
     "net/16/saving_seconds", kNic},
    {"9.4.2/net64_nic_ms", "10.1", 10.07014256238806, kMs, "expert-replicas",
     "net/64/saving_seconds", kNic},

    {"9.4.3/pad_nonempty", "224", 224, 1, "grouped-gemm-padding", "padded_rows"},
    {"9.4.3/pad_all", "256", 256, 1, "grouped-gemm-padding", "padded_rows_all"},
    {"9.4.3/pipe2_ms", "0.581", 0.5814541506367495, kMs, "expert-pipeline",
     "layer_pipeline_seconds"},
    {"9.4.3/comm_slow", "1.49", 1.4885789367293307, 1, "expert-pipeline", "communication_slowdown"},
    {"9.4.3/comp_slow", "3.1", 3.1471354166666665, 1, "expert-pipeline", "compute_slowdown"},
};

// Half of the last digit's place: "12.5" stands for 12.45 to 12.55.
double HalfOfLastPlace(const std::string& printed) {
  const size_t point = printed.find('.');
  const size_t decimals = point == std::string::npos ? 0 : printed.size() - point - 1;
  return 0.5 * std::pow(10, -static_cast<double>(decimals));
}

class CalcExpertValuesTest : public testing::TestWithParam<ChapterValue> {};

TEST_P(CalcExpertValuesTest, Matches) {
  const ChapterValue& value = GetParam();
  const auto result = RunCalc(value.topic, Catalog::BuiltIn(), value.flags);
  ASSERT_TRUE(result) << result.error().message;
  const double got = Read(CalcJson(value.topic, *result), value.where) / value.unit;
  EXPECT_NEAR(got, value.computed, 1e-9 * std::abs(value.computed)) << value.name;
  const std::string printed = value.printed;
  if (printed.empty()) return;
  // And what the rounding of a double may add.
  const double allowed = HalfOfLastPlace(printed) + 1e-12 * std::abs(value.computed);
  EXPECT_NEAR(got, std::stod(printed), allowed) << value.name;
}

std::string TestName(const testing::TestParamInfo<ChapterValue>& info) {
  std::string name = info.param.name;
  for (char& c : name) {
    if (c == '/' || c == '.') c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Chapter, CalcExpertValuesTest, testing::ValuesIn(kValues), TestName);

}  // namespace
}  // namespace divisi
