#include "divisi/cli/kv_events_text.h"

#include <utility>

#include "divisi/core/format.h"
#include "divisi/kv/kv_event.h"

namespace divisi {
namespace {

// Of a digest its last 8 bytes, as vLLM would show it.
std::string Short(const EventHash& hash) {
  return hash.is_bytes() ? Format("..{:016x}", hash.Short()) : hash.Text();
}

std::string Blocks(size_t count) { return Format("{} block{}", count, count == 1 ? "" : "s"); }

std::string MediumText(const std::optional<std::string>& medium) {
  const std::string name = medium.value_or("GPU");
  return TierOfMedium(medium) == EventTier::kUnknown ? name + " (unknown)" : name;
}

std::string Text(const StoredEvent& event) {
  std::string text =
      Format("stored   {} on {}", Blocks(event.hashes.size()), MediumText(event.medium));
  if (event.block_size > 0) text += Format(", {} tokens each", event.block_size);
  if (event.tokens.empty()) text += ", tokens untold";
  if (event.lora_name) text += ", adapter " + *event.lora_name;
  if (event.group) text += Format(", group {}", *event.group);
  if (!IsPrefixEvidence(event.spec_kind)) text += Format(" ({}: no prefix)", *event.spec_kind);
  if (!event.hashes.empty()) text += ": " + Short(event.hashes[0]);
  text += event.parent ? " after " + Short(*event.parent) : " at the start";
  return text;
}
std::string Text(const RemovedEvent& event) {
  std::string text =
      Format("removed  {} on {}", Blocks(event.hashes.size()), MediumText(event.medium));
  if (event.group) text += Format(", group {}", *event.group);
  if (!event.hashes.empty()) text += ": " + Short(event.hashes[0]);
  return text;
}
std::string Text(const ClearedEvent&) { return "cleared  everything"; }
std::string Text(const OtherEvent& event) {
  return Format("unknown  '{}', {} bytes; --format json shows it", event.type, event.value.size());
}

}  // namespace

std::string KvEventsText(const EventUpdate& update) {
  std::string text;
  if (update.forget) text += "         forget   everything: batches are missing for good\n";
  for (const KvEvent& event : update.events) {
    text += Format("{:>8} {}\n", update.sequence,
                   std::visit([](const auto& known) { return Text(known); }, event));
  }
  return text;
}

Json KvEventsJson(const EventUpdate& update) {
  Json json = Json::MakeObject();
  json.Set("forget", update.forget);
  json.Set("sequence", update.sequence);
  EventBatch batch;
  batch.time_seconds = update.time_seconds;
  batch.events = update.events;
  batch.data_parallel_rank = update.data_parallel_rank;
  const Json fields = EventBatchJson(batch);
  for (const auto& [name, value] : fields.as_object()) json.Set(name, value);
  return json;
}

std::string StreamNews(const EventStreamStats& before, const EventStreamStats& now) {
  std::string text;
  if (now.connected != before.connected) text += now.connected ? "connected\n" : "disconnected\n";
  if (now.following && !before.following) {
    text += Format("following: nothing is missing before batch {}\n", now.next);
  }
  if (now.gaps > before.gaps) text += "a gap in the batches' numbers\n";
  if (now.unanswered > before.unanswered) text += "a replay that was asked for did not come\n";
  if (now.restarts > before.restarts) text += "the publisher started anew\n";
  if (now.undecodable > before.undecodable) text += "a batch that could not be read\n";
  return text;
}

std::string HeldText(const EventStreamStats& stats, const HeldBlocks& held) {
  std::string text = Format("{} batches; {} held", stats.batches, Blocks(held.size()));
  const char* before = ": ";
  for (int i = 0; i < kEventTiers; ++i) {
    const auto tier = static_cast<EventTier>(i);
    if (held.On(tier) == 0) continue;
    text += Format("{}{} {}", std::exchange(before, ", "), held.On(tier), EventTierName(tier));
  }
  return text;
}

}  // namespace divisi
