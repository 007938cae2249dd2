#include "divisi/serve/cluster_query.h"

#include <initializer_list>
#include <utility>

#include "divisi/core/format.h"
#include "divisi/core/json.h"

namespace divisi {
namespace {

constexpr Seconds kDrain{60};

Json WorkerStatus(const Registry::Member& member, const WorkerLoad& load) {
  const ReportMessage& report = member.report;
  Json worker = Json::MakeObject();
  worker.Set("name", member.hello.name);
  worker.Set("role", RoleName(load.role));
  worker.Set("connected", member.link.has_value());
  worker.Set("draining", load.draining);
  worker.Set("requests", load.requests);
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, int64_t>>{
           {"running", report.running},
           {"waiting", report.waiting},
           {"held", report.held},
           {"reserved", report.reserved},
           {"stopping", report.stopping},
           {"pages_used", report.blocks_used},
           {"pages_total", report.blocks_total},
           {"prefill_tokens", report.prefill_tokens},
           {"decode_tokens", report.decode_tokens},
           {"pages_written", report.pages_written},
           {"handovers", report.handovers},
           {"expired_leases", report.expired_leases}}) {
    worker.Set(key, value);
  }
  return worker;
}

std::string StatusText(const Dispatcher& dispatcher, const Registry& registry, Seconds now) {
  Json out = Json::MakeObject();
  out.Set("waiting", dispatcher.waiting());
  out.Set("live", dispatcher.live());
  Json workers = Json::MakeArray();
  for (const WorkerLoad& load : dispatcher.loads(now)) {
    workers.Append(WorkerStatus(registry.members().at(load.node), load));
  }
  for (const auto& [node, member] : registry.members()) {  // Not the dispatcher's any more
    if (member.away) workers.Append(WorkerStatus(member, {node, member.hello.role}));
  }
  out.Set("workers", std::move(workers));
  return out.Dump();
}

Result<WorkerRole> RoleOf(const std::string& name) {
  for (const WorkerRole role : {WorkerRole::kReplica, WorkerRole::kPrefill, WorkerRole::kDecode}) {
    if (name == RoleName(role)) return role;
  }
  return Error{Code::kInvalidArgument,
               Format("'{}' is no role; there are replica, prefill and decode", name)};
}

}  // namespace

Result<std::string> AnswerQuery(const std::vector<std::string>& words, Dispatcher& dispatcher,
                                Registry& registry, Seconds now) {
  if (words.size() == 1 && words[0] == "status") return StatusText(dispatcher, registry, now);
  if (words.size() == 2 && words[0] == "drain") {
    ASSIGN_OR_RETURN(const NodeId node, registry.Named(words[1]));
    registry.Drain(node, kDrain);
    dispatcher.Drain(node, now, kDrain);
    return StatusText(dispatcher, registry, now);
  }
  if (words.size() == 3 && words[0] == "role") {
    ASSIGN_OR_RETURN(const NodeId node, registry.Named(words[1]));
    ASSIGN_OR_RETURN(const WorkerRole role, RoleOf(words[2]));
    // Any worker can do each part: what it has under the old role it ends.
    registry.SetRole(node, role);
    if (!registry.members().at(node).away) dispatcher.AddWorker(node, role);
    return StatusText(dispatcher, registry, now);
  }
  return Error{Code::kInvalidArgument, "expected status, drain NAME, or role NAME ROLE"};
}

}  // namespace divisi
