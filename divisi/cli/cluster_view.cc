#include "divisi/cli/cluster_view.h"

#include <optional>

#include "divisi/cli/json_members.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

// The threshold and its terms, in the order of HandoverThreshold's formula.
std::string ThresholdText(const JsonMembers& threshold) {
  const auto ms = [&](const char* key) { return threshold.Number(key) * 1e3; };
  const std::string from = threshold.WholeOr("from_tokens", "");
  const std::string tokens =
      from.empty() ? std::string("at no length") : Format("from {} tokens", from);
  if (threshold.Flag("given")) return Format("prompts are handed over {}\n", tokens);
  return Format(
      "prompts are handed over {}: {:.4g} ms a token for each of {} streams against {:.3g} ms to "
      "reserve, {:.4g} ms a token of the last chunk to send and a step of {:.3g} ms\n",
      tokens, ms("work_seconds_per_token"), threshold.Whole("streams"), ms("reserve_seconds"),
      ms("transfer_seconds_per_token"), ms("step_seconds"));
}

constexpr const char* kRow = "{:<20}{:<9}{:>9}{:>9}{:>9}{:>9}{:>14}{:>13}{:>13}{:>11}  {}\n";

std::string WorkerRow(const JsonMembers& worker) {
  const auto number = [&](const char* key) { return worker.WholeOr(key, "-"); };
  const std::string used = number("pages_used");
  std::string state = worker.Text("state");
  if (state == "draining") {
    state += Format(", {:.0f} s left", worker.Number("drain_left_seconds"));
  } else if (worker.Flag("full")) {
    state += ", full";
  }
  return Format(kRow, worker.Text("name"), worker.Text("role"), number("requests"),
                number("running"), number("held"), number("reserved"),
                used == "-" ? used : Format("{}/{}", used, number("pages_total")),
                number("prefill_tokens"), number("decode_tokens"), number("handovers"), state);
}

// What the gateway knows of a worker's pages; nothing where it does not follow them.
std::string KvText(const JsonMembers& worker) {
  const auto kv = worker.Find("kv");
  const auto pages = kv ? kv->Find("pages") : std::nullopt;
  const auto events = kv ? kv->Find("events") : std::nullopt;
  if (!pages || !events) return "";
  return Format(
      "kv of {}: pages: {} device, {} host, {} disk, {} remote; events: {} gaps, {} replays, {} "
      "losses{}\n",
      worker.Text("name"), pages->Whole("device"), pages->Whole("host"), pages->Whole("disk"),
      pages->Whole("remote"), events->Whole("gaps"), events->Whole("replays"),
      events->Whole("losses"), events->Flag("following") ? "" : ", not followed now");
}

}  // namespace

Result<std::string> ClusterText(const Json& status) {
  std::optional<Error> fault;
  const JsonMembers top(status, "", fault);
  std::string text = Format(kRow, "worker", "role", "requests", "running", "held", "reserved",
                            "pages", "prefilled", "decoded", "handovers", "state");
  for (const JsonMembers& worker : top.Each("workers")) text += WorkerRow(worker);
  text += Format("{} requests, {} without a first token, {} waiting for a worker; policy {}\n",
                 top.Whole("live"), top.Whole("waiting"), top.Whole("queued"), top.Text("policy"));
  if (const auto threshold = top.Find("disaggregate")) text += ThresholdText(*threshold);
  for (const JsonMembers& worker : top.Each("workers")) text += KvText(worker);
  if (const auto directory = top.Find("directory")) {
    text += Format("directory: {} pages, {} of the pool; {} refused for want of room\n",
                   directory->Whole("pages"), directory->Whole("pool_pages"),
                   directory->Whole("refused_pages"));
  }
  if (fault) return *fault;
  return text;
}

Result<bool> DrainsStill(const Json& status, const std::string& worker) {
  std::optional<Error> fault;
  bool busy = false;
  for (const JsonMembers& each : JsonMembers(status, "", fault).Each("workers")) {
    const bool meant = each.Text("name") == worker || each.Text("id") == worker;
    busy |= meant && each.Flag("draining") && each.Whole("requests") > 0;
  }
  if (fault) return *fault;
  return busy;
}

}  // namespace divisi
