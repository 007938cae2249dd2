#include <cmath>
#include <limits>

#include "divisi/core/format.h"
#include "divisi/kv/kv_event.h"
#include "divisi/kv/kv_event_fields.h"
#include "divisi/kv/msgpack.h"

namespace divisi {
namespace {

using Type = MsgpackReader::Type;

// Reads the fields of one event. What fails once stays failed.
class FieldReader {
 public:
  // things: hashes and extra keys that the batch may still have.
  FieldReader(MsgpackReader& in, size_t& things) : in_(in), things_(things) {}

  bool Read(EventHash& hash) {
    if (in_.Next() == Type::kBytes) {
      const auto bytes = in_.GetBytes();
      if (!bytes || bytes->size() > kMaxHashBytes) return false;
      hash = EventHash(std::string(*bytes));
      return true;
    }
    MsgpackReader other = in_;
    if (const auto number = in_.GetUnsigned()) {
      hash = EventHash(*number);
      return true;
    }
    in_ = other;
    const auto number = in_.GetInt();
    if (number) hash = EventHash(*number);
    return number.has_value();
  }
  bool Read(int64_t& value) {
    const auto number = in_.GetInt();
    value = number.value_or(0);
    return number.has_value();
  }
  bool Read(std::string& text) {
    const auto read = in_.GetText();
    if (read) text = *read;
    return read.has_value();
  }
  bool Read(std::vector<TokenId>& tokens) {
    const auto size = in_.GetArray();
    if (!size) return false;
    tokens.reserve(*size);
    for (uint32_t i = 0; i < *size; ++i) {
      const auto token = in_.GetInt();
      if (!token || *token < 0 || *token > std::numeric_limits<TokenId>::max()) return false;
      tokens.push_back(static_cast<TokenId>(*token));
    }
    return true;
  }
  bool Read(ExtraKey& key) {
    if (in_.Next() == Type::kText) return Read(key.text);
    if (in_.Next() == Type::kBytes) {
      const auto bytes = in_.GetBytes();
      key.kind = ExtraKey::Kind::kBytes;
      if (bytes) key.text = *bytes;
      return bytes.has_value();
    }
    MsgpackReader pair = in_;
    key.kind = ExtraKey::Kind::kPair;
    if (pair.GetArray() == 2u && FieldReader(pair, things_).ReadPair(key)) {
      in_ = pair;
      return true;
    }
    key = {.kind = ExtraKey::Kind::kOther, .text = {}, .offset = 0};
    return ReadRaw(key.text);
  }
  template <typename T>
  bool Read(std::vector<T>& list) {
    const auto size = in_.GetArray();
    if (!size || *size > things_) return false;
    things_ -= *size;
    list.resize(*size);
    for (T& item : list) {
      if (!Read(item)) return false;
    }
    return true;
  }
  // Any value, as it stands.
  bool ReadRaw(std::string& value) {
    const auto raw = in_.Skip();
    if (!raw || things_ == 0) return false;
    --things_;
    value = *raw;
    return true;
  }
  template <typename T>
  bool Read(std::optional<T>& value) {
    value.reset();
    return in_.TakeNil() || Read(value.emplace());
  }

 private:
  bool ReadPair(ExtraKey& key) { return Read(key.text) && Read(key.offset); }

  MsgpackReader& in_;
  size_t& things_;
};

// The fields behind the type.
template <typename Event>
bool ReadPositional(MsgpackReader& in, uint32_t fields, size_t& things, Event& event) {
  FieldReader reader(in, things);
  for (uint32_t i = 0; i < fields; ++i) {
    if (i < EventFields<Event>::kNames.size()) {
      if (!EventFields<Event>::Visit(event, i, [&](auto& field) { return reader.Read(field); })) {
        return false;
      }
    } else if (!reader.ReadRaw(event.more.emplace_back().value)) {
      return false;
    }
  }
  return true;
}

template <typename Event>
bool ReadPair(MsgpackReader& in, std::string_view name, size_t& things, Event& event) {
  FieldReader reader(in, things);
  const auto& names = EventFields<Event>::kNames;
  for (size_t i = 0; i < names.size(); ++i) {
    if (name != names[i]) continue;
    return EventFields<Event>::Visit(event, i, [&](auto& field) {
      field = {};  // A key that comes twice counts once.
      return reader.Read(field);
    });
  }
  // A positional event's fields beyond the known have no name, so an empty one is none.
  if (name == "type" || name.empty()) return in.Skip().has_value();
  event.more.push_back({std::string(name), {}});
  return reader.ReadRaw(event.more.back().value);
}

template <typename Event>
bool ReadMap(MsgpackReader& in, uint32_t pairs, size_t& things, Event& event) {
  for (uint32_t i = 0; i < pairs; ++i) {
    const auto name = in.GetText();
    if (!name || !ReadPair(in, *name, things, event)) return false;
  }
  return true;
}

// The value of "type" in the map at which `in` stands; empty: none.
std::string_view TypeOfMap(MsgpackReader in) {
  const auto pairs = in.GetMap();
  for (uint32_t i = 0; pairs && i < *pairs; ++i) {
    const bool is_text = in.Next() == Type::kText;
    const bool is_type = is_text && MsgpackReader(in).GetText() == "type";
    if (!in.Skip()) return {};
    if (is_type && in.Next() == Type::kText) return *in.GetText();
    if (!in.Skip()) return {};
  }
  return {};
}
std::string_view TypeOfArray(MsgpackReader in) {
  const auto size = in.GetArray();
  if (!size || *size == 0 || in.Next() != Type::kText) return {};
  return in.GetText().value_or(std::string_view());
}

// raw: one whole value. None: it is no such event.
template <typename Event>
std::optional<KvEvent> ReadAs(std::string_view raw, size_t& things) {
  MsgpackReader in(raw);
  std::optional<KvEvent> result(std::in_place, std::in_place_type<Event>);
  auto& event = std::get<Event>(*result);
  size_t left = things;
  bool ok = false;
  if (in.Next() == Type::kMap) {
    const auto pairs = in.GetMap();
    ok = pairs && ReadMap(in, *pairs, left, event);
  } else {
    const auto size = in.GetArray();
    ok = size && in.GetText() && ReadPositional(in, *size - 1, left, event);
  }
  if (ok) {
    things = left;
  } else {
    result.reset();
  }
  return result;
}

KvEvent ReadEvent(std::string_view raw, size_t& things) {
  const MsgpackReader in(raw);
  std::string_view type;
  if (in.Next() == Type::kMap) type = TypeOfMap(in);
  if (in.Next() == Type::kArray) type = TypeOfArray(in);
  std::optional<KvEvent> event;
  if (type == EventFields<StoredEvent>::kType) event = ReadAs<StoredEvent>(raw, things);
  if (type == EventFields<RemovedEvent>::kType) event = ReadAs<RemovedEvent>(raw, things);
  if (type == EventFields<ClearedEvent>::kType) event = ReadAs<ClearedEvent>(raw, things);
  if (event) return *std::move(event);
  return OtherEvent{std::string(type), std::string(raw)};
}

Error NoBatch(std::string_view bytes) {
  return {Code::kDataLoss, Format("{} bytes that are no batch of KV events; does another program "
                                  "publish there?",
                                  bytes.size())};
}

}  // namespace

Result<EventBatch> DecodeEventBatch(std::string_view bytes) {
  if (bytes.size() > kMaxBatchBytes) {
    return Error{Code::kOutOfRange,
                 Format("a batch of KV events of {} bytes; at most {} are read; publish more often",
                        bytes.size(), kMaxBatchBytes)};
  }
  MsgpackReader in(bytes);
  EventBatch batch;
  const auto elements = in.GetArray();
  if (!elements || *elements < 2) return NoBatch(bytes);
  const auto time = in.GetFloat();
  const auto events = in.GetArray();
  if (!time || !std::isfinite(*time) || !events) return NoBatch(bytes);
  batch.time_seconds = *time;
  if (*events > kMaxBatchEvents) {
    return Error{Code::kOutOfRange,
                 Format("a batch of {} KV events; at most {} are read", *events, kMaxBatchEvents)};
  }
  size_t things = kMaxBatchHashes;
  for (uint32_t i = 0; i < *events; ++i) {
    const auto raw = in.Skip();
    if (!raw) return NoBatch(bytes);
    batch.events.push_back(ReadEvent(*raw, things));
  }
  if (*elements > 2 && !FieldReader(in, things).Read(batch.data_parallel_rank)) {
    return NoBatch(bytes);
  }
  for (uint32_t i = 3; i < *elements; ++i) {
    if (!FieldReader(in, things).ReadRaw(batch.more.emplace_back())) return NoBatch(bytes);
  }
  if (!in.AtEnd() || !in.ok()) return NoBatch(bytes);
  return batch;
}

}  // namespace divisi
