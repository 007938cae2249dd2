// The figures of sections 9.5, 9.6 and of cost in 9.7, each by the calculation that gives it: at
// the precision at which the specification prints it, and to 1e-9 of its unrounded value.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <string>

#include "divisi/cli/calc.h"

namespace divisi {
namespace {

using Inputs = std::map<std::string, std::string>;

struct Entry {
  const char* name;     // "9.5.2/r_GBps": section and figure
  const char* printed;  // Its last digit is the precision: "1.4e3" has two.
  double computed;
  const char* topic;
  const char* figure;  // A figure's key, or "table/row/column".
  double scale = 1;    // From our unit to the entry's.
  Inputs inputs = {};
};

constexpr double kMilli = 1e3;
constexpr double kMega = 1e-6;
constexpr double kGiga = 1e-9;
constexpr double kTera = 1e-12;
constexpr double kMebi = 1.0 / (1 << 20);
constexpr double kGibi = 1.0 / (1 << 30);

const Entry kEntries[] = {
    {"9.5.2/r_GBps", "1.41", 1.4105771354780485, "kv-tiers", "production", kGiga},
    {"9.5.2/hbm_s",
     "45",
     45.08792777110043,
     "kv-tiers",
     "tiers/device/residence",
     1,
     {{"device-room", "63.6GB"}}},  // As its table rounds 80 GB less the weights.
    {"9.5.2/host_s", "195", 194.86910714091727, "kv-tiers", "tiers/host/residence"},
    {"9.5.2/ssd_s", "2722", 2722.289978632479, "kv-tiers", "tiers/disk/residence"},
    {"9.5.2/need10s_GB", "14.1", 14.105771354780485, "kv-tiers", "needed", kGiga},
    {"9.5.2/need10m_GB",
     "846",
     846.3462812868291,
     "kv-tiers",
     "needed",
     kGiga,
     {{"interval", "10min"}}},
    {"9.5.2/ssd_read_ms", "170", 170.1351481690141, "kv-tiers", "tiers/disk/fetch", kMilli},
    {"9.5.2/ssd_write_ms", "288", 287.6094171428571, "kv-tiers", "disk_write", kMilli},
    {"9.5.2/remote_ms", "96.6", 96.63676416, "kv-tiers", "tiers/remote/fetch", kMilli},
    {"9.5.2/each_step_100_s", "4.83", 4.831838208, "kv-reuse", "every_step"},
    {"9.5.2/each_step_GBps", "121", 120.7959552, "kv-reuse", "every_step_bandwidth", kGiga},
    {"9.5.2/mla_each_step_GBps",
     "57.6",
     57.5668224,
     "kv-reuse",
     "every_step_bandwidth",
     kGiga,
     {{"state-model", "deepseek-v3"}}},
    {"9.5.2/hold_GiBs", "11.25", 11.25, "kv-reuse", "held_byte_seconds", kGibi},
    {"9.5.2/hold_mla_GiBs",
     "5.36",
     5.361328125,
     "kv-reuse",
     "held_byte_seconds",
     kGibi,
     {{"state-model", "deepseek-v3"}}},
    {"9.5.2/hit_ms", "30.9", 30.857407146666667, "kv-tiers", "hit_compute", kMilli},
    {"9.5.2/layer_read_ms", "1.34", 1.34217728, "kv-tiers", "layer_read", kMilli},
    {"9.5.2/layer_comp_ms", "0.857", 0.8571501985185186, "kv-tiers", "layer_compute", kMilli},
    {"9.5.2/serial_ms", "79.2", 79.17578922666667, "kv-tiers", "serial", kMilli},
    {"9.5.2/layerwise_ms", "49.2", 49.175532278518524, "kv-tiers", "layerwise", kMilli},
    {"9.5.2/buf_MB", "437", 436.5243733333333, "kv-tiers", "buffer", kMega},
    {"9.5.2/buf_layers", "14", 14, "kv-tiers", "buffer_layers"},
    {"9.5.2/hide_host", "400", 400, "kv-tiers", "tiers/host/tokens_to_hide"},
    {"9.5.2/hide_remote", "8e2", 796, "kv-tiers", "tiers/remote/tokens_to_hide"},
    {"9.5.2/hide_ssd", "1.4e3", 1388, "kv-tiers", "tiers/disk/tokens_to_hide"},
    {"9.5.2/ssd_layer_ms", "4.73", 4.725976338028168, "kv-tiers", "disk_layer_read", kMilli},
    {"9.5.2/host_prefixes", "227", 227, "kv-tiers", "prefetch_depth"},
    {"9.5.2/dwpd_MBps", "44.4", 44.44444444444445, "kv-tiers", "disk_allowed", kMega},
    {"9.5.2/dwpd_over", "31.7", 31.73798554825609, "kv-tiers", "disk_excess"},
    {"9.5.2/dwpd_share", "0.032", 0.03150798586380184, "kv-tiers", "disk_share"},
    {"9.5.2/store_once_ms", "96.6", 96.63676416, "kv-reuse", "stored", kMilli},
    {"9.5.2/bw_k1", "2.82", 2.821154270956097, "kv-reuse", "break_even", kGiga},
    {"9.5.2/10gbe_ms",
     "966",
     966.3676416,
     "kv-reuse",
     "read",
     kMilli,
     {{"read-bandwidth", "10Gbit/s"}}},
    {"9.5.2/mooncake_50k_TB", "3.77", 3.7748736, "kv-tiers", "pool", kTera},
    {"9.5.3/page16_MiB", "2.25", 2.25, "kv-restart", "page", kMebi},
    {"9.5.3/read_MiB", "144", 144, "kv-restart", "read", kMebi},
    {"9.5.3/used_MiB", "141.75", 141.75, "kv-restart", "used", kMebi},
    {"9.5.4/full_ms", "887", 887.2078095491282, "route", "full_compute", kMilli},
    {"9.5.4/A_ms", "281", 280.8574071466667, "route", "local_hit", kMilli},
    {"9.5.4/B_recompute_ms", "907", 907.2078095491282, "route", "recompute", kMilli},
    {"9.5.4/B_50", "282", 282.44931754666663, "route", "fetch", kMilli, {{"network", "50Gbit/s"}}},
    {"9.5.4/B_200", "137", 137.49417130666666, "route", "fetch", kMilli},
    {"9.5.4/B_eq_A_GBps", "6.3", 6.301906072726038, "route", "local_hit_break_even", kGiga},
    {"9.5.4/B_eq_recompute_GBps", "1.48", 1.476665365157506, "route", "recompute_break_even",
     kGiga},
    {"9.5.4/hit80", "110.9", 110.85740714666667, "route", "uncertain_hit", kMilli},
    {"9.5.4/miss80", "967.2", 967.2078095491282, "route", "uncertain_miss", kMilli},
    {"9.5.4/p_min", "0.07", 0.07006477702547001, "route", "available_for_mean"},
    {"9.5.4/mean_p90", "196.5", 196.49244738691283, "route", "mean", kMilli},
    {"9.5.4/v41_threshold_ms", "12.666", 12.666, "route", "owner_longest_queue", kMilli},
    {"9.6.1/backlog", "35", 35, "startup", "backlog"},
    {"9.6.1/drain_pd_s", "33", 33.187703016754355, "startup", "services/pd-direct/drain"},
    {"9.6.1/end_pd_s", "43", 43.187703016754355, "startup", "services/pd-direct/cleared_at"},
    {"9.6.1/end_mix_s", "63", 62.543544984158856, "startup",
     "services/replicas-chunked/cleared_at"},
    {"9.6.2/state_GB", "41.1", 41.070624768, "migrate", "state", kGiga},
    {"9.6.2/grow_GBps", "0.172", 0.17193067552189242, "migrate", "growth", kGiga},
    {"9.6.2/catch25_s", "1.65", 1.6542013086578697, "migrate", "copies/network/catch_up"},
    {"9.6.2/catch625_s", "6.76", 6.757182680131165, "migrate", "copies/slow_network/catch_up"},
    {"9.6.2/added_GB", "0.28", 0.28440794844674605, "migrate", "copies/network/added", kGiga},
    {"9.7.1/pool_ms", "96.6", 96.63676416, "kv-reuse", "stored", kMilli},
    {"9.7.2/mu_min", "4.2", 4.2, "startup", "required_rate"},
    {"9.7.2/replica_backlog60", "59", 59.15208788525614, "startup", "services/replicas/backlog_at"},
    {"9.7.2/yuan_35", "0.63", 0.6349206349206349, "cost", "services/pd-direct/at_arrival"},
    {"9.7.2/yuan_co", "0.74", 0.7365770566754243, "cost", "services/replicas/saturated"},
    {"9.7.2/yuan_pd", "0.49", 0.4879064177777778, "cost", "services/pd-direct/saturated"},
    {"9.7.2/yuan_quarter", "1.95", 1.9516256711111113, "cost", "services/pd-direct/good"},
    {"9.7.3/save_ms", "760", 759.721616830359, "kv-reuse", "saved", kMilli},
    {"9.7.3/pair_GiB", "3.375", 3.375, "kv-reuse", "pool_moved", kGibi},
    {"9.7.3/pair_GBps", "12.7", 12.683575296, "kv-reuse", "pool_traffic", kGiga},
    {"9.7.3/pair_rate", "6.9", 6.898685737892434, "kv-reuse", "pool_requests"},
};

// Half a unit of the last digit printed: "1.41" -> 0.005, "1.4e3" -> 50.
double PrintedHalfUnit(const std::string& printed) {
  const size_t e = printed.find('e');
  const std::string digits = printed.substr(0, e);
  const size_t point = digits.find('.');
  const int decimals = point == std::string::npos ? 0 : static_cast<int>(digits.size() - point - 1);
  const int exponent = e == std::string::npos ? 0 : std::atoi(printed.c_str() + e + 1);
  return 0.5 * std::pow(10.0, exponent - decimals);
}

// The value at "key" or "table/row/column" and its unit; NaN where there is none.
CalcFigure Find(const CalcResult& result, const std::string& path) {
  for (const CalcFigure& figure : result.figures) {
    if (figure.key == path) return figure;
  }
  for (const CalcTable& table : result.tables) {
    for (size_t row = 0; row < table.rows.size(); ++row) {
      for (size_t column = 0; column < table.columns.size(); ++column) {
        const CalcFigure& head = table.columns[column];
        if (table.key + "/" + table.row_names[row] + "/" + head.key != path) continue;
        return {head.key, table.rows[row][column], head.unit, head.label};
      }
    }
  }
  return {path, std::nan(""), CalcUnit::kCount, "there is no such figure"};
}

class CacheValuesTest : public testing::TestWithParam<Entry> {};

TEST_P(CacheValuesTest, IsAsPrintedAndAsComputed) {
  const Entry& entry = GetParam();
  static const Catalog catalog = Catalog::BuiltIn();
  const auto result = RunCalc(entry.topic, catalog, entry.inputs);
  ASSERT_TRUE(result) << result.error().message;
  const CalcFigure figure = Find(*result, entry.figure);
  const double value = figure.value * entry.scale;
  EXPECT_NEAR(value, std::strtod(entry.printed, nullptr), PrintedHalfUnit(entry.printed));
  // Bytes are whole.
  const double byte = figure.unit == CalcUnit::kBytes ? 0.5 * entry.scale : 0;
  EXPECT_NEAR(value, entry.computed, std::abs(entry.computed) * 1e-9 + byte);
}

std::string NameOf(const testing::TestParamInfo<Entry>& entry) {
  std::string name = entry.param.name;
  for (char& c : name) {
    if (c == '/' || c == '.') c = '_';
  }
  return name;
}

void PrintTo(const Entry& entry, std::ostream* out) { *out << entry.name; }

INSTANTIATE_TEST_SUITE_P(Chapter, CacheValuesTest, testing::ValuesIn(kEntries), NameOf);

}  // namespace
}  // namespace divisi
