#include "divisi/serve/route_log.h"

#include <algorithm>
#include <utility>

namespace divisi {
namespace {

void SetTimes(const RouteOption& option, Json& out) {
  const RouteTimes times = option.times();
  const RouteEstimate& at = option.at;
  out.Set("queue_seconds", times.queue.value);
  out.Set("ready_seconds", times.ready.value);
  out.Set("compute_seconds", times.compute.value);
  out.Set("ttft_seconds", option.ttft().value);
  out.Set("lookup_seconds", at.lookup.value);
  out.Set("links_seconds", at.links.value);
  out.Set("reading_seconds", at.reading.value);
  out.Set("transfer_seconds", option.transfer.value);
  out.Set("step_seconds", option.step.value);
}

void SetPrefix(const RouteOption& option, const RouteLog::Name& name, Json& out) {
  const RouteEstimate& at = option.at;
  out.Set("cached_tokens", at.cached);
  constexpr const char* kKeys[] = {"device_tokens", "host_tokens", "disk_tokens", "pool_tokens",
                                   "peer_tokens"};
  for (size_t t = 0; t < at.from.size(); ++t) out.Set(kKeys[t], at.from[t]);
  out.Set("peer", at.peer ? Json(name(*at.peer)) : Json());
  out.Set("awaited_tokens", at.awaited);
  out.Set("present_tokens", option.present);
}

Json OptionJson(const RouteOption& option, bool chosen, const RouteLog::Name& name) {
  Json out = Json::MakeObject();
  out.Set("way", option.apart() ? "apart" : "whole");
  out.Set("worker", name(option.target));
  out.Set("prefill", option.apart() ? Json(name(*option.prefill)) : Json());
  out.Set("chosen", chosen);
  SetTimes(option, out);
  SetPrefix(option, name, out);
  out.Set("odds", option.at.odds);
  out.Set("expected_seconds", option.expected().value);
  out.Set("work_seconds", option.at.work.value);
  out.Set("delay_seconds", option.at.delay.value);
  out.Set("cost_seconds", option.cost().value);
  out.Set("requests", option.requests);
  return out;
}

}  // namespace

Json RouteJson(const RouteChoice& choice, int64_t prompt_tokens, const RouteLog::Name& name) {
  Json out = Json::MakeObject();
  out.Set("prompt_tokens", prompt_tokens);
  Json candidates = Json::MakeArray();
  const RouteOption& chosen = choice.chosen;
  candidates.Append(OptionJson(chosen, true, name));
  for (const RouteOption& option : choice.options) {
    if (option.prefill == chosen.prefill && option.target == chosen.target) continue;
    candidates.Append(OptionJson(option, false, name));
  }
  out.Set("candidates", std::move(candidates));
  return out;
}

void RouteLog::Add(RouteNote note) {
  std::string label;
  if (note.attempt > 1) {
    for (const Entry& entry : entries_) {
      if (entry.note.request == note.request) label = entry.label;
    }
  }
  entries_.push_back({std::move(note), std::move(label)});
  if (entries_.size() > kMost) entries_.pop_front();
}

void RouteLog::Label(uint64_t request, std::string_view label) {
  for (Entry& entry : entries_) {
    if (entry.note.request == request) entry.label = label;
  }
}

void RouteLog::HeldElsewhere(uint64_t request, std::vector<ForeignPrefix> engines) {
  elsewhere_[request] = std::move(engines);
  if (elsewhere_.size() > 4 * kMost) elsewhere_.erase(elsewhere_.begin());  // Numbers rise.
}

Json RouteLog::EntryJson(const Entry& entry, const Name& name, Seconds now) const {
  Json out = Json::MakeObject();
  out.Set("request", entry.label);
  out.Set("attempt", static_cast<int64_t>(entry.note.attempt));
  out.Set("seconds_ago", (now - entry.note.at).value);
  const Json route = RouteJson(entry.note.choice, entry.note.prompt_tokens, name);
  for (const auto& [key, value] : route.as_object()) out.Set(key, value);
  Json elsewhere = Json::MakeArray();
  if (const auto found = elsewhere_.find(entry.note.request); found != elsewhere_.end()) {
    for (const ForeignPrefix& held : found->second) {
      Json one = Json::MakeObject();
      one.Set("engine", held.engine);
      one.Set("tokens", held.tokens);
      one.Set("tier", EventTierName(held.tier));
      elsewhere.Append(std::move(one));
    }
  }
  out.Set("elsewhere", std::move(elsewhere));
  return out;
}

Json RouteLog::Last(size_t count, const Name& name, Seconds now) const {
  Json out = Json::MakeArray();
  count = std::min(count, kMostShown);
  for (auto entry = entries_.rbegin(); entry != entries_.rend() && count > 0; ++entry, --count) {
    out.Append(EntryJson(*entry, name, now));
  }
  return out;
}

Json RouteLog::Of(std::string_view label, const Name& name, Seconds now) const {
  Json out = Json::MakeArray();
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (label.empty() || entry->label != label) continue;
    if (out.as_array().size() == kMostShown) break;
    out.Append(EntryJson(*entry, name, now));
  }
  return out;
}

}  // namespace divisi
