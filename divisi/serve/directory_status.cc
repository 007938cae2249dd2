#include "divisi/serve/directory_status.h"

#include "divisi/control/route_prefix.h"
#include "divisi/core/format.h"
#include "divisi/kv/page_loading.h"
#include "divisi/serve/metric_lines.h"

namespace divisi {
namespace {

Json TierPages(const PageDirectory& pages, NodeId holder) {
  Json out = Json::MakeObject();
  const auto counts = pages.tier_pages_of(holder);
  for (int tier = 0; tier < kTiers; ++tier) {
    out.Set(TierName(static_cast<Tier>(tier)), counts[static_cast<size_t>(tier)]);
  }
  return out;
}

Json StreamStatus(const SourceStatus& status) {
  const EventStreamStats& stream = status.stream;
  Json out = Json::MakeObject();
  out.Set("connected", stream.connected);
  out.Set("following", stream.following);
  for (const auto& [key, value] : {std::pair{"batches", stream.batches},
                                   {"duplicates", stream.duplicates},
                                   {"gaps", stream.gaps},
                                   {"replays", stream.asks},
                                   {"unanswered", stream.unanswered},
                                   {"restarts", stream.restarts},
                                   {"losses", stream.losses},
                                   {"undecodable", stream.undecodable}}) {
    out.Set(key, static_cast<int64_t>(value));
  }
  return out;
}

std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "\"";
}

}  // namespace

Json WorkerKvStatus(const GatewayCore& gateway, const ClusterEventStats& events, NodeId worker) {
  const auto status = events.members.find(worker);
  if (status == events.members.end()) return {};
  Json out = Json::MakeObject();
  out.Set("pages", TierPages(*gateway.pages(), worker));
  Json odds = Json::MakeObject();
  for (int tier = 0; tier < kTiers; ++tier) {
    odds.Set(TierName(static_cast<Tier>(tier)),
             gateway.pages()->Odds(worker, static_cast<Tier>(tier)));
  }
  out.Set("odds", std::move(odds));
  out.Set("events", StreamStatus(status->second));
  return out;
}

Json DirectoryStatus(const GatewayCore& gateway, const ClusterEventStats& events) {
  const DirectoryStats stats = gateway.pages()->stats();
  Json out = Json::MakeObject();
  out.Set("pages", stats.pages);
  out.Set("pairs", stats.pairs);
  out.Set("promises", stats.promises);
  out.Set("bytes", stats.bytes.value);
  out.Set("refused_pages", stats.refused_pages);
  out.Set("pool_pages", gateway.pages()->pages_of(kPoolHolder));
  Json stores = Json::MakeArray();
  for (const SourceStatus& status : events.stores) stores.Append(StreamStatus(status));
  out.Set("stores", std::move(stores));
  return out;
}

std::string DirectoryMetrics(const GatewayCore& gateway, const ClusterEventStats& events,
                             std::string_view labels) {
  if (gateway.pages() == nullptr) return "";
  const PageDirectory& pages = *gateway.pages();
  const DirectoryStats stats = pages.stats();
  MetricLines lines(labels);
  for (const auto& [name, help, value] :
       {std::tuple{"divisi:directory_pages", "Pages that the directory knows.", stats.pages},
        {"divisi:directory_pairs", "Pages of workers and of the pool, each for itself.",
         stats.pairs},
        {"divisi:directory_bytes", "Memory of the directory.", stats.bytes.value},
        {"divisi:directory_refused_pages_total",
         "Pages past its capacity; remedy: a larger --kv-directory-pages.", stats.refused_pages}}) {
    lines.Head(name, std::string_view(name).ends_with("_total") ? "counter" : "gauge", help);
    lines.Sample("", static_cast<double>(value));
  }
  lines.Head("divisi:directory_worker_pages", "gauge", "Pages by worker and tier.");
  for (const auto& [node, member] : gateway.registry().members()) {
    const auto counts = pages.tier_pages_of(node);
    for (int tier = 0; tier < kTiers; ++tier) {
      lines.Sample(Format("worker={},tier=\"{}\"", Quoted(member.hello.name),
                          TierName(static_cast<Tier>(tier))),
                   static_cast<double>(counts[static_cast<size_t>(tier)]));
    }
  }
  lines.Head("divisi:directory_pool_pages", "gauge", "Pages of the remote pool.");
  lines.Sample("", static_cast<double>(pages.pages_of(kPoolHolder)));
  EventStreamStats sum;
  for (const auto& [node, status] : events.members) {
    sum.gaps += status.stream.gaps;
    sum.asks += status.stream.asks;
    sum.restarts += status.stream.restarts;
    sum.losses += status.stream.losses;
  }
  // Of members that are there: a worker that goes takes its counts with it.
  for (const auto& [name, help, value] :
       {std::tuple{"divisi:kv_event_gaps", "Times that events were missing.", sum.gaps},
        {"divisi:kv_event_replays", "Replays asked for, checks included.", sum.asks},
        {"divisi:kv_event_restarts", "Publishers that began anew.", sum.restarts},
        {"divisi:kv_event_losses", "Times that all of a worker was forgotten.", sum.losses}}) {
    lines.Head(name, "gauge", help);
    lines.Sample("", static_cast<double>(value));
  }
  return lines.Take();
}

}  // namespace divisi
