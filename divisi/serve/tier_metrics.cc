#include "divisi/serve/tier_metrics.h"

#include <utility>
#include <vector>

#include "divisi/core/format.h"
#include "divisi/serve/metrics.h"

namespace divisi {
namespace {

double Number(int64_t value) { return static_cast<double>(value); }

class Samples {
 public:
  Samples(std::string_view labels, std::string& out) : labels_(labels), out_(out) {}

  void Gauge(std::string_view name, std::string_view help, double value) {
    Head(name, "gauge", help);
    Line(name, "", value);
  }
  void Counter(std::string_view name, std::string_view help, int64_t value) {
    Head(name, "counter", help);
    Line(name, "", Number(value));
  }
  void Head(std::string_view name, std::string_view type, std::string_view help) {
    out_ += Format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  // more: further labels, such as tier="host".
  void Line(std::string_view name, std::string_view more, double value) {
    out_ += Format("{}{{{}{}{}}} {}\n", name, labels_, more.empty() ? "" : ",", more, value);
  }

 private:
  std::string_view labels_;
  std::string& out_;
};

void AppendLoads(const PrefixLoaderStats& prefixes, Samples& samples) {
  samples.Counter("divisi:kv_loads_total", "Prefixes that were begun to load.", prefixes.loads);
  samples.Counter("divisi:kv_loads_failed_total", "Loads of which not all pages came in time.",
                  prefixes.loads_failed);
  samples.Counter("divisi:kv_pages_read_total", "Pages that loads brought.", prefixes.pages_read);
  samples.Counter("divisi:kv_pages_used_total", "Of those, pages that their requests used.",
                  prefixes.pages_used);
  samples.Counter("divisi:kv_loads_without_room_total",
                  "Requests that found no pages to load their prefix into.", prefixes.no_room);
  samples.Counter("divisi:kv_loads_later_total",
                  "Of these, those for which there were some before their turn.",
                  prefixes.loaded_later);
  samples.Counter("divisi:kv_loads_not_worth_total",
                  "Requests that computed a prefix because reading it takes longer.",
                  prefixes.not_worth);
  samples.Gauge("divisi:kv_loading_pages", "Device pages of loads and of who waits with them.",
                Number(prefixes.loading_pages));
  samples.Gauge("divisi:kv_saves_waiting", "Pages that wait to be saved.",
                Number(prefixes.tiers.saves_waiting));
  samples.Counter("divisi:kv_saves_refused_total", "Pages that were not saved for want of room.",
                  prefixes.tiers.saves_refused);
  samples.Counter("divisi:kv_bad_objects_total", "Stored pages that failed a check.",
                  prefixes.tiers.bad_objects);
  samples.Gauge("divisi:kv_disk_write_budget_pages",
                "Pages that the disk's endurance lets be written now.",
                prefixes.tiers.budget_pages);
}

constexpr std::pair<Tier, const char*> kBelow[] = {{Tier::kHost, "tier=\"host\""},
                                                   {Tier::kDisk, "tier=\"disk\""},
                                                   {Tier::kRemote, "tier=\"remote\""},
                                                   {Tier::kPeer, "tier=\"peer\""}};

struct TrafficSample {
  const char* name;
  const char* type;
  const char* help;
  double (*value)(const TierTraffic& traffic);
};
constexpr TrafficSample kTraffic[] = {
    {"divisi:kv_tier_pages_read_total", "counter", "Whole pages that loads read of the tier.",
     [](const TierTraffic& traffic) { return Number(traffic.pages_read); }},
    {"divisi:kv_tier_pages_bad_total", "counter",
     "Pages that the tier did not have, or not as they were put.",
     [](const TierTraffic& traffic) { return Number(traffic.pages_bad); }},
    {"divisi:kv_tier_read_bytes_total", "counter", "Bytes read of the tier.",
     [](const TierTraffic& traffic) { return Number(traffic.read.value); }},
    {"divisi:kv_tier_written_bytes_total", "counter", "Bytes written to the tier.",
     [](const TierTraffic& traffic) { return Number(traffic.written.value); }},
    {"divisi:kv_tier_read_bytes_per_second", "gauge", "Measured while reading.",
     [](const TierTraffic& traffic) { return traffic.read_rate.value; }},
};

void AppendTraffic(const TierStats& tiers, const TierIoStats& io, Samples& samples) {
  const auto of = [&](const char* name, const char* type, const char* help,
                      std::vector<int64_t> values) {
    samples.Head(name, type, help);
    for (size_t i = 0; i < values.size(); ++i) {
      samples.Line(name, kBelow[i].second, Number(values[i]));
    }
  };
  of("divisi:kv_tier_pages", "gauge", "Pages that the tier holds.",
     {tiers.host_pages, tiers.disk_pages});
  of("divisi:kv_tier_writes_total", "counter", "Pages written to the tier.",
     {tiers.host_writes, tiers.disk_writes, tiers.pool_puts});
  of("divisi:kv_tier_evictions_total", "counter", "Pages that the tier gave up.",
     {tiers.host_evictions, tiers.disk_evictions});
  for (const auto& [name, type, help, value] : kTraffic) {
    samples.Head(name, type, help);
    for (const auto& [tier, label] : kBelow) {
      samples.Line(name, label, value(io.tiers[static_cast<size_t>(tier)]));
    }
  }
}

void AppendPool(const PrefixLoaderStats& prefixes, const RemoteStoreStats& pool, Samples& samples) {
  samples.Counter("divisi:kv_pool_questions_total", "Prompts whose pages the pool was asked for.",
                  prefixes.asked);
  samples.Counter("divisi:kv_pool_unanswered_total", "Of those, not answered in time.",
                  prefixes.unanswered);
  samples.Head("divisi:kv_pool_gets_total", "counter", "Gets of pages, by how they ended.");
  for (const auto& [result, count] : {std::pair{"hit", pool.hits},
                                      {"miss", pool.misses},
                                      {"late", pool.late},
                                      {"failed", pool.failed}}) {
    samples.Line("divisi:kv_pool_gets_total", Format("result=\"{}\"", result), Number(count));
  }
  samples.Counter("divisi:kv_pool_gets_unwanted_total",
                  "Pages that came ahead and were not used after all.", pool.unwanted);
  samples.Counter("divisi:kv_pool_bad_pages_total", "Pages that failed a check, and were removed.",
                  pool.bad);
  samples.Counter("divisi:kv_pool_puts_failed_total", "Pages that the pool did not take.",
                  prefixes.tiers.pool_puts_failed);
  samples.Counter("divisi:kv_pool_puts_dropped_total",
                  "Pages that were gone, or too many, before their turn.",
                  prefixes.tiers.pool_puts_dropped);
  samples.Gauge("divisi:kv_pool_puts_waiting", "Pages that wait for their turn.",
                Number(prefixes.tiers.pool_waiting));
  samples.Counter("divisi:kv_pool_skipped_total",
                  "Gets and puts that were not tried, as the pool was late or full just now.",
                  pool.skipped);
}

struct NodeSample {
  const char* name;
  const char* type;
  const char* help;
  double (*value)(const RemoteHealth& health);
};
constexpr NodeSample kNodes[] = {
    {"divisi:kv_pool_node_ready", "gauge", "Whether the pool's node serves: 1 or 0.",
     [](const RemoteHealth& node) { return node.ready ? 1.0 : 0.0; }},
    {"divisi:kv_pool_node_failures_total", "counter", "Connections to it that ended or failed.",
     [](const RemoteHealth& node) { return Number(node.failures); }},
    {"divisi:kv_pool_node_bytes_per_second", "gauge", "Of gets, measured while there were some.",
     [](const RemoteHealth& node) { return node.rate.value; }},
    {"divisi:kv_pool_node_latency_seconds", "gauge", "Of a question and its answer.",
     [](const RemoteHealth& node) { return node.latency.value; }},
};

void AppendNodes(const std::vector<RemoteHealth>& health, Samples& samples) {
  for (const auto& [name, type, help, value] : kNodes) {
    samples.Head(name, type, help);
    for (const RemoteHealth& node : health) {
      samples.Line(name, Format("node=\"{}\"", EscapeLabel(node.address)), value(node));
    }
  }
}

}  // namespace

void AppendTierMetrics(const PrefixLoaderStats& prefixes, const TierDriverStats& driver,
                       std::string_view labels, std::string& out) {
  Samples samples(labels, out);
  AppendLoads(prefixes, samples);
  AppendTraffic(prefixes.tiers, driver.io, samples);
  if (!driver.pool) return;
  AppendPool(prefixes, *driver.pool, samples);
  AppendNodes(driver.pool->health, samples);
}

}  // namespace divisi
