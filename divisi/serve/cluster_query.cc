#include "divisi/serve/cluster_query.h"

#include <initializer_list>
#include <utility>

#include "divisi/control/member_keys.h"
#include "divisi/core/format.h"
#include "divisi/core/json.h"
#include "divisi/core/units.h"
#include "divisi/serve/directory_status.h"

namespace divisi {
namespace {

// What a drain without a time gets.
constexpr Seconds kDrainWithin{60};

const char* StateOf(const Registry::Member& member, const WorkerLoad& load) {
  if (!member.link) return "lost";
  if (!load.draining) return "ready";
  return load.requests > 0 ? "draining" : "drained";
}

Json RatesStatus(const WorkerRates& rates) {
  Json out = Json::MakeObject();
  out.Set("step_seconds", rates.step.value);
  out.Set("seconds_per_prompt_token", rates.per_token.value);
  out.Set("seconds_per_prompt_pair", rates.per_pair.value);
  out.Set("seconds_per_decode", rates.per_sequence.value);
  out.Set("write_bytes_per_second", rates.write.value);
  out.Set("steps_measured", rates.steps);
  out.Set("writes_measured", rates.writes);
  return out;
}

// What the worker says of itself, null where nothing was heard.
void SetReported(const std::optional<ReportMessage>& told, Json& worker) {
  const ReportMessage& report = told.value_or(ReportMessage{});
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, int64_t>>{
           {"running", report.running},
           {"waiting", report.waiting},
           {"held", report.held},
           {"reserved", report.reserved},
           {"stopping", report.stopping},
           {"pages_used", report.blocks_used},
           {"pages_total", report.blocks_total},
           {"pages_reserved", report.pages_reserved},
           {"pages_pinned", report.pages_pinned},
           {"prefill_tokens", report.counters.prefill_tokens},
           {"cached_tokens", report.counters.cached_tokens},
           {"decode_tokens", report.counters.decode_tokens},
           {"pages_written", report.counters.pages_sent},
           {"pages_received", report.counters.pages_received},
           {"kv_pages_read", report.counters.kv_pages_read},
           {"kv_pages_used", report.counters.kv_pages_used},
           {"pool_puts", report.counters.pool_puts},
           {"handovers", report.counters.handovers},
           {"expired_leases", report.counters.expired_leases}}) {
    worker.Set(key, told ? Json(value) : Json());
  }
}

Json WorkerStatus(const Registry::Member& member, const WorkerLoad& load) {
  Json worker = Json::MakeObject();
  worker.Set("id", NodeText(member.hello.node));
  worker.Set("name", member.hello.name);
  worker.Set("role", RoleName(load.role));
  worker.Set("connected", member.link.has_value());
  worker.Set("state", StateOf(member, load));
  worker.Set("draining", load.draining);
  worker.Set("drain_left_seconds", load.drain_left.value);
  worker.Set("full", load.full);
  worker.Set("requests", load.requests);
  worker.Set("decoding", load.decoding);
  worker.Set("queue_seconds", load.queue.value);
  SetReported(member.report, worker);
  worker.Set("rates", RatesStatus(load.rates));
  return worker;
}

Json ThresholdStatus(const HandoverThreshold& threshold) {
  Json out = Json::MakeObject();
  if (threshold.from) {
    out.Set("from_tokens", *threshold.from);
  } else {
    out.Set("from_tokens", Json());
  }
  out.Set("given", threshold.given);
  out.Set("reserve_seconds", threshold.reserve.value);
  out.Set("step_seconds", threshold.step.value);
  out.Set("transfer_seconds_per_token", threshold.transfer_per_token.value);
  out.Set("work_seconds_per_token", threshold.work_per_token.value);
  out.Set("streams", threshold.streams);
  return out;
}

std::string StatusText(const GatewayCore& gateway, const ClusterEventStats& events, Seconds now) {
  const Dispatcher& dispatcher = gateway.dispatcher();
  const Registry& registry = gateway.registry();
  Json out = Json::MakeObject();
  const DispatcherStats stats = dispatcher.stats();
  out.Set("waiting", dispatcher.waiting());
  out.Set("live", dispatcher.live());
  out.Set("queued", stats.queued);
  out.Set("policy", PolicyName(dispatcher.options().policy));
  if (const auto threshold = dispatcher.threshold(now)) {
    out.Set("disaggregate", ThresholdStatus(*threshold));
  }
  Json retried = Json::MakeObject();
  for (size_t i = 0; i < kRetryReasons; ++i) {
    retried.Set(RetryReasonName(static_cast<RetryReason>(i)), stats.retried[i]);
  }
  out.Set("retried", std::move(retried));
  Json workers = Json::MakeArray();
  const auto append = [&](const Registry::Member& member, const WorkerLoad& load) {
    Json worker = WorkerStatus(member, load);
    if (gateway.pages() != nullptr) worker.Set("kv", WorkerKvStatus(gateway, events, load.node));
    workers.Append(std::move(worker));
  };
  for (const WorkerLoad& load : dispatcher.loads(now)) {
    append(registry.members().at(load.node), load);
  }
  for (const auto& [node, member] : registry.members()) {  // Not the dispatcher's any more
    if (member.away) append(member, {.node = node, .role = member.hello.role});
  }
  if (gateway.pages() != nullptr) out.Set("directory", DirectoryStatus(gateway, events));
  out.Set("workers", std::move(workers));
  return out.Dump();
}

Result<Seconds> DrainTime(const std::vector<std::string>& words) {
  if (words.size() < 3) return kDrainWithin;
  const auto time = ParseSeconds(words[2]);
  if (!time) return WithContext(time.error(), "the drain's time");
  if (*time > kLongestDrain) {
    return Error{Code::kInvalidArgument, "a drain takes a day at most"};
  }
  return *time;
}

// What an operator asks to change. True: done.
Result<bool> Change(const std::vector<std::string>& words, GatewayCore& gateway, Seconds now) {
  const bool drains = words.size() >= 2 && words.size() <= 3 && words[0] == "drain";
  const bool undrains = words.size() == 2 && words[0] == "undrain";
  const bool changes = words.size() == 3 && words[0] == "role";
  if (!drains && !undrains && !changes) return false;
  ASSIGN_OR_RETURN(const NodeId node, gateway.registry().Named(words[1]));
  if (drains) {
    ASSIGN_OR_RETURN(const Seconds within, DrainTime(words));
    gateway.Drain(node, within, now);
    return true;
  }
  WorkerRole role = gateway.registry().members().at(node).hello.role;
  if (changes) {
    ASSIGN_OR_RETURN(role, ParseRole(words[2]));
  }
  RETURN_IF_ERROR(gateway.Enlist(node, role, now));
  return true;
}

}  // namespace

Result<std::string> AnswerQuery(const std::vector<std::string>& words, GatewayCore& gateway,
                                Seconds now, const ClusterEventStats& events) {
  const bool asks = words.size() == 1 && words[0] == "status";
  ASSIGN_OR_RETURN(const bool changed, Change(words, gateway, now));
  if (asks || changed) return StatusText(gateway, events, now);
  return Error{Code::kInvalidArgument,
               "expected status, drain NAME [TIME], undrain NAME, or role NAME ROLE"};
}

}  // namespace divisi
