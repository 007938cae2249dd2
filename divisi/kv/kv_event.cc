#include "divisi/kv/kv_event.h"

#include <algorithm>
#include <array>

#include "divisi/core/json.h"
#include "divisi/kv/kv_event_fields.h"
#include "divisi/kv/msgpack.h"

namespace divisi {
namespace {

void Write(MsgpackWriter& out, const EventHash& hash) {
  if (hash.is_bytes()) return out.Bytes(hash.bytes());
  if (hash.negative()) return out.Int(static_cast<int64_t>(hash.number()));
  out.Unsigned(hash.number());
}
void Write(MsgpackWriter& out, int64_t value) { out.Int(value); }
void Write(MsgpackWriter& out, const std::string& text) { out.Text(text); }

void Write(MsgpackWriter& out, const ExtraKey& key) {
  switch (key.kind) {
    case ExtraKey::Kind::kText:
      return out.Text(key.text);
    case ExtraKey::Kind::kBytes:
      return out.Bytes(key.text);
    case ExtraKey::Kind::kPair:
      out.Array(2);
      out.Text(key.text);
      return out.Int(key.offset);
    case ExtraKey::Kind::kOther:
      return out.Raw(key.text);
  }
}

template <typename T>
void Write(MsgpackWriter& out, const std::optional<T>& value);

template <typename T>
void Write(MsgpackWriter& out, const std::vector<T>& list) {
  out.Array(list.size());
  for (const T& item : list) Write(out, item);
}

template <typename T>
void Write(MsgpackWriter& out, const std::optional<T>& value) {
  if (!value) return out.Nil();
  Write(out, *value);
}

void Write(MsgpackWriter& out, const std::vector<TokenId>& tokens) {
  out.Array(tokens.size());
  for (const TokenId token : tokens) out.Int(token);
}

template <typename Event>
size_t LastSet(const Event& event) {
  size_t fields = EventFields<Event>::kAlways;
  for (size_t i = fields; i < EventFields<Event>::kNames.size(); ++i) {
    if (EventFields<Event>::IsSet(event, i)) fields = i + 1;
  }
  return fields;
}

template <typename Event>
void WriteField(MsgpackWriter& out, const Event& event, size_t index) {
  EventFields<Event>::Visit(event, index, [&out](const auto& field) { Write(out, field); });
}

template <typename Event>
void WritePositional(MsgpackWriter& out, const Event& event) {
  const auto more = std::ranges::count_if(event.more, [](const auto& f) { return f.name.empty(); });
  const size_t fields = more > 0 ? EventFields<Event>::kNames.size() : LastSet(event);
  out.Array(1 + fields + static_cast<size_t>(more));
  out.Text(EventFields<Event>::kType);
  for (size_t i = 0; i < fields; ++i) WriteField(out, event, i);
  for (const EventField& field : event.more) {
    if (field.name.empty()) out.Raw(field.value);
  }
}

template <typename Event>
void WriteMap(MsgpackWriter& out, const Event& event) {
  using Fields = EventFields<Event>;
  size_t pairs = 1;
  const auto told = [&](size_t i) { return i < Fields::kMapAlways || Fields::IsSet(event, i); };
  for (size_t i = 0; i < Fields::kNames.size(); ++i) pairs += told(i);
  for (const EventField& field : event.more) pairs += !field.name.empty();
  out.Map(pairs);
  out.Text("type");
  out.Text(Fields::kType);
  for (size_t i = 0; i < Fields::kNames.size(); ++i) {
    if (!told(i)) continue;
    out.Text(Fields::kNames[i]);
    WriteField(out, event, i);
  }
  for (const EventField& field : event.more) {
    if (field.name.empty()) continue;
    out.Text(field.name);
    out.Raw(field.value);
  }
}

struct Medium {
  std::string_view name;
  EventTier tier;
};
constexpr std::array<Medium, 10> kMedia = {{{"GPU", EventTier::kDevice},
                                            {"CPU", EventTier::kHost},
                                            {"CPU_PINNED", EventTier::kHost},
                                            {"CPU_TIER1", EventTier::kHost},
                                            {"CPU_TIER2", EventTier::kHost},
                                            {"DISK", EventTier::kDisk},
                                            {"FS", EventTier::kDisk},
                                            {"STORAGE", EventTier::kDisk},
                                            {"OBJ", EventTier::kRemote},
                                            {"EXTERNAL", EventTier::kRemote}}};

Json ToJson(const EventHash& hash) { return hash.Text(); }
Json ToJson(int64_t value) { return value; }
Json ToJson(TokenId value) { return value; }
Json ToJson(const std::string& text) { return text; }
Json ToJson(const ExtraKey& key) {
  switch (key.kind) {
    case ExtraKey::Kind::kText:
      return key.text;
    case ExtraKey::Kind::kPair:
      return Json::Array{key.text, key.offset};
    default:
      return EventHash(key.text).Text();
  }
}
template <typename T>
Json ToJson(const std::optional<T>& value);
template <typename T>
Json ToJson(const std::vector<T>& list) {
  Json array = Json::MakeArray();
  for (const T& item : list) array.Append(ToJson(item));
  return array;
}
template <typename T>
Json ToJson(const std::optional<T>& value) {
  return value ? ToJson(*value) : Json();
}

template <typename Event>
Json EventJson(const Event& event) {
  using Fields = EventFields<Event>;
  Json json = Json::MakeObject();
  json.Set("type", Fields::kType);
  for (size_t i = 0; i < Fields::kNames.size(); ++i) {
    if (i >= Fields::kMapAlways && !Fields::IsSet(event, i)) continue;
    Fields::Visit(event, i, [&](const auto& field) { json.Set(Fields::kNames[i], ToJson(field)); });
  }
  for (const EventField& field : event.more) {
    json.Set(field.name.empty() ? "unnamed" : field.name, EventHash(field.value).Text());
  }
  return json;
}
Json EventJson(const OtherEvent& event) {
  Json json = Json::MakeObject();
  json.Set("type", event.type);
  json.Set("msgpack", EventHash(event.value).Text());
  return json;
}

}  // namespace

std::span<const TokenId> StoredEvent::TokensOf(size_t index) const {
  const auto size = static_cast<size_t>(std::max<int64_t>(block_size, 0));
  // Divided, not multiplied: a foreign size may be anything.
  const bool whole = size > 0 && tokens.size() % size == 0 && tokens.size() / size == hashes.size();
  if (!whole || index >= hashes.size()) return {};
  return std::span(tokens).subspan(index * size, size);
}

std::string EncodeEventBatch(const EventBatch& batch, EventShape shape) {
  MsgpackWriter out;
  out.Array(3 + batch.more.size());
  out.Float(batch.time_seconds);
  out.Array(batch.events.size());
  for (const KvEvent& event : batch.events) {
    std::visit(
        [&]<typename Event>(const Event& known) {
          if constexpr (std::is_same_v<Event, OtherEvent>) {
            out.Raw(known.value);
          } else {
            shape == EventShape::kMap ? WriteMap(out, known) : WritePositional(out, known);
          }
        },
        event);
  }
  Write(out, batch.data_parallel_rank);
  for (const std::string& value : batch.more) out.Raw(value);
  return out.Take();
}

const char* EventTierName(EventTier tier) {
  constexpr std::array<const char*, kEventTiers> kNames = {"device", "host", "disk", "remote",
                                                           "unknown"};
  return kNames[static_cast<size_t>(tier)];
}

EventTier TierOfMedium(const std::optional<std::string>& medium) {
  if (!medium) return EventTier::kDevice;
  for (const Medium& known : kMedia) {
    if (known.name == *medium) return known.tier;
  }
  return EventTier::kUnknown;
}

const char* MediumOfTier(EventTier tier) {
  CHECK(tier != EventTier::kUnknown);
  constexpr std::array<const char*, kEventTiers - 1> kNames = {"GPU", "CPU", "DISK", "EXTERNAL"};
  return kNames[static_cast<size_t>(tier)];
}

bool IsPrefixEvidence(const std::optional<std::string>& spec_kind) {
  return !spec_kind || *spec_kind == "full_attention" || *spec_kind == "mla_attention" ||
         *spec_kind == "sink_full_attention";
}

Json EventBatchJson(const EventBatch& batch) {
  Json json = Json::MakeObject();
  json.Set("time_seconds", batch.time_seconds);
  json.Set("data_parallel_rank", ToJson(batch.data_parallel_rank));
  Json events = Json::MakeArray();
  for (const KvEvent& event : batch.events) {
    events.Append(std::visit([](const auto& known) { return EventJson(known); }, event));
  }
  json.Set("events", std::move(events));
  return json;
}

}  // namespace divisi
