#include "divisi/serve/cluster_metrics.h"

#include <map>

#include "divisi/core/format.h"
#include "divisi/serve/metric_lines.h"

namespace divisi {
namespace {

constexpr WorkerRole kRoles[] = {WorkerRole::kReplica, WorkerRole::kPrefill, WorkerRole::kDecode};

std::string RoleLabel(WorkerRole role) { return Format("role=\"{}\"", RoleName(role)); }

struct CounterName {
  const char* name;
  const char* help;
  int64_t WorkerCounters::*count;
};
constexpr CounterName kCounters[] = {
    {"divisi:role_prefill_tokens_total", "Prompt tokens that workers of the role computed.",
     &WorkerCounters::prefill_tokens},
    {"divisi:role_cached_tokens_total", "Prompt tokens that they found in shared pages.",
     &WorkerCounters::cached_tokens},
    {"divisi:role_decode_tokens_total", "Output tokens that they decoded, all but the first ones.",
     &WorkerCounters::decode_tokens},
    {"divisi:kv_pages_sent_total", "KV pages written to other workers.",
     &WorkerCounters::pages_sent},
    {"divisi:kv_pages_received_total", "KV pages taken over with a prompt.",
     &WorkerCounters::pages_received},
    {"divisi:kv_reservations_total", "Prompts for which pages were reserved.",
     &WorkerCounters::reservations},
    {"divisi:kv_reservations_refused_total", "Prompts for which there was no room.",
     &WorkerCounters::reservations_refused},
    {"divisi:kv_transfers_started_total", "Prompts computed for another worker.",
     &WorkerCounters::transfers},
    {"divisi:kv_transfers_taken_total", "Of them, taken by the other worker.",
     &WorkerCounters::handovers},
    {"divisi:kv_transfers_failed_total", "Of them, not computed, written or taken, or to one gone.",
     &WorkerCounters::transfers_failed},
    {"divisi:kv_transfers_aborted_total", "Of them, given up by the gateway or the other worker.",
     &WorkerCounters::transfers_aborted},
    {"divisi:kv_transfers_answered_total", "Of them, ended by their first token.",
     &WorkerCounters::transfers_answered},
    {"divisi:num_kv_expired_reqs_total", "Leases that ended without a word of the gateway.",
     &WorkerCounters::expired_leases},
    {"divisi:kv_loads_total", "Prefixes that were begun to load from tiers below the device.",
     &WorkerCounters::kv_loads},
    {"divisi:kv_loads_failed_total", "Of them, those of which not all pages came in time.",
     &WorkerCounters::kv_loads_failed},
    {"divisi:kv_pages_read_total", "Pages that loads brought.", &WorkerCounters::kv_pages_read},
    {"divisi:kv_pages_used_total", "Of them, pages that their requests used.",
     &WorkerCounters::kv_pages_used},
    {"divisi:kv_pages_bad_total", "Pages that a tier did not have, or not as they were put.",
     &WorkerCounters::kv_pages_bad},
    {"divisi:kv_pool_questions_total", "Prompts whose pages the pool was asked for.",
     &WorkerCounters::pool_questions},
    {"divisi:kv_pool_unanswered_total", "Of them, not answered in time.",
     &WorkerCounters::pool_unanswered},
    {"divisi:kv_pool_late_gets_total", "Pages that the pool did not give in time.",
     &WorkerCounters::pool_late},
    {"divisi:kv_pool_puts_total", "Pages put into the pool.", &WorkerCounters::pool_puts},
    {"divisi:kv_pool_puts_failed_total", "Pages that the pool did not take.",
     &WorkerCounters::pool_puts_failed},
    {"divisi:kv_pool_puts_dropped_total", "Pages that were gone, or too many, before their turn.",
     &WorkerCounters::pool_puts_dropped},
    {"divisi:kv_pool_failures_total", "Connections to the pool's nodes that ended or failed.",
     &WorkerCounters::pool_failures}};

struct TierBytes {
  const char* tier;
  int64_t WorkerCounters::*read;
  int64_t WorkerCounters::*written;
};
constexpr TierBytes kTierBytes[] = {
    {"host", &WorkerCounters::host_read_bytes, &WorkerCounters::host_written_bytes},
    {"disk", &WorkerCounters::disk_read_bytes, &WorkerCounters::disk_written_bytes},
    {"remote", &WorkerCounters::pool_read_bytes, &WorkerCounters::pool_written_bytes},
    {"peer", &WorkerCounters::peer_read_bytes, nullptr}};

void AppendTierBytes(const ClusterTotals& totals, MetricLines& lines) {
  const auto append = [&](const char* name, const char* help,
                          int64_t WorkerCounters::*TierBytes::*of) {
    lines.Head(name, "counter", help);
    for (const WorkerRole role : kRoles) {
      for (const TierBytes& bytes : kTierBytes) {
        if (bytes.*of == nullptr) continue;  // Nothing is written to other workers' memory.
        lines.Sample(Format("{},tier=\"{}\"", RoleLabel(role), bytes.tier),
                     static_cast<double>(totals[role].counters.*(bytes.*of)));
      }
    }
  };
  append("divisi:kv_tier_read_bytes_total", "Bytes read of the tier.", &TierBytes::read);
  append("divisi:kv_tier_written_bytes_total", "Bytes written to the tier.", &TierBytes::written);
}

void AppendTotals(const ClusterTotals& totals, MetricLines& lines) {
  for (const auto& [name, help, count] : kCounters) {
    lines.Head(name, "counter", help);
    for (const WorkerRole role : kRoles) {
      lines.Sample(RoleLabel(role), static_cast<double>(totals[role].counters.*count));
    }
  }
  AppendTierBytes(totals, lines);
  lines.Head("divisi:kv_bytes_total", "counter", "KV bytes moved between workers.");
  for (const WorkerRole role : kRoles) {
    const std::string label = RoleLabel(role);
    lines.Sample(label + ",direction=\"sent\"", static_cast<double>(totals[role].sent.value));
    lines.Sample(label + ",direction=\"received\"",
                 static_cast<double>(totals[role].received.value));
  }
  lines.Head("divisi:kv_transfer_time_seconds", "histogram",
             "From the first page of a prompt sent until the prompt is taken.");
  for (const WorkerRole role : kRoles) {
    lines.Times(RoleLabel(role), totals[role].counters.transfer_times);
  }
  lines.Head("divisi:kv_transfer_tail_seconds", "histogram",
             "From the last chunk of a prompt computed until the prompt is taken.");
  for (const WorkerRole role : kRoles) {
    lines.Times(RoleLabel(role), totals[role].counters.tail_times);
  }
}

void AppendWorkers(const Registry& registry, const Dispatcher& dispatcher, Seconds now,
                   MetricLines& lines) {
  std::map<NodeId, bool> draining;
  for (const WorkerLoad& load : dispatcher.loads(now)) draining[load.node] = load.draining;
  std::map<std::pair<WorkerRole, std::string>, int64_t> counts;
  for (const auto& [node, member] : registry.members()) {
    const char* state = !member.link ? "lost" : draining[node] ? "draining" : "ready";
    ++counts[{member.hello.role, state}];
  }
  lines.Head("divisi:workers", "gauge", "Workers by role and state.");
  for (const WorkerRole role : kRoles) {
    for (const char* state : {"ready", "draining", "lost"}) {
      lines.Sample(Format("{},state=\"{}\"", RoleLabel(role), state),
                   static_cast<double>(counts[{role, state}]));
    }
  }
}

struct GaugeName {
  const char* name;
  const char* labels;
  const char* help;
  int64_t ReportMessage::*value;
};
// Like names follow each other.
constexpr GaugeName kGauges[] = {
    {"divisi:role_requests_running", "", "Requests in the batches of the role's workers.",
     &ReportMessage::running},
    {"divisi:role_requests_waiting", "", "Requests in their queues.", &ReportMessage::waiting},
    {"divisi:role_prompt_backlog_tokens", "", "Prompt tokens that they have yet to compute.",
     &ReportMessage::prompt_backlog},
    {"divisi:kv_transfers", "state=\"reserved\"", "Prompts on their way between workers.",
     &ReportMessage::reserved},
    {"divisi:kv_transfers", "state=\"computing\"", nullptr, &ReportMessage::computing},
    {"divisi:kv_transfers", "state=\"writing\"", nullptr, &ReportMessage::writing},
    {"divisi:kv_transfers", "state=\"handed_over\"", nullptr, &ReportMessage::handed_over},
    {"divisi:kv_transfers", "state=\"ending\"", nullptr, &ReportMessage::ending},
    {"divisi:kv_transfers", "state=\"stopping\"", nullptr, &ReportMessage::stopping},
    {"divisi:kv_pages_reserved", "", "Pages kept for prompts that have not come.",
     &ReportMessage::pages_reserved},
    {"divisi:kv_pages_pinned", "", "Pages of prompts computed and not taken.",
     &ReportMessage::pages_pinned},
    {"divisi:kv_pool_connections", "state=\"all\"", "Workers' connections to nodes of the pool.",
     &ReportMessage::pool_nodes},
    {"divisi:kv_pool_connections", "state=\"ready\"", nullptr, &ReportMessage::pool_ready}};

void AppendGauges(const Registry& registry, MetricLines& lines) {
  for (const auto& [name, more, help, value] : kGauges) {
    if (help != nullptr) lines.Head(name, "gauge", help);
    for (const WorkerRole role : kRoles) {
      int64_t sum = 0;
      for (const auto& [node, member] : registry.members()) {
        if (member.hello.role == role && member.report) sum += (*member.report).*value;
      }
      lines.Sample(RoleLabel(role) + (*more == '\0' ? "" : ",") + more, static_cast<double>(sum));
    }
  }
}

void AppendRequests(const DispatcherStats& stats, MetricLines& lines) {
  lines.Head("divisi:gateway_requests", "gauge", "Requests of this gateway by phase.");
  for (const auto& [phase, value] : {std::pair{"queued", stats.queued},
                                     {"reserving", stats.reserving},
                                     {"prefilling", stats.prefilling},
                                     {"decoding", stats.decoding}}) {
    lines.Sample(Format("phase=\"{}\"", phase), static_cast<double>(value));
  }
  lines.Head("divisi:gateway_attempts_total", "counter",
             "Attempts at requests: on prefill and decode workers apart, or on one whole.");
  lines.Sample("way=\"apart\"", static_cast<double>(stats.apart));
  lines.Sample("way=\"whole\"", static_cast<double>(stats.whole));
  lines.Head("divisi:requests_retried_total", "counter", "Attempts given up for another, by why.");
  for (size_t i = 0; i < kRetryReasons; ++i) {
    lines.Sample(Format("reason=\"{}\"", RetryReasonName(static_cast<RetryReason>(i))),
                 static_cast<double>(stats.retried[i]));
  }
}

}  // namespace

std::string ClusterMetrics(const ClusterTotals& totals, const Registry& registry,
                           const Dispatcher& dispatcher, Seconds now, std::string_view labels) {
  MetricLines lines(labels);
  AppendTotals(totals, lines);
  AppendWorkers(registry, dispatcher, now, lines);
  AppendGauges(registry, lines);
  AppendRequests(dispatcher.stats(), lines);
  return lines.Take();
}

}  // namespace divisi
