#include "divisi/kv/store_message.h"

#include <array>
#include <utility>

#include "divisi/core/format.h"
#include "divisi/core/wire.h"

namespace divisi {
namespace {

// "DVST": begins what each side says first, with the protocol's version.
constexpr uint32_t kMagic = 0x54535644;

struct Counter {
  const char* name;
  const char* help;
  int64_t StoreCounters::*value;
  bool gauge = false;
};
// In the order of the wire.
constexpr std::array kCounters = {
    Counter{"memory_bytes", "Bytes that objects may take", &StoreCounters::memory_bytes, true},
    Counter{"used_bytes", "Bytes that objects take", &StoreCounters::used_bytes, true},
    Counter{"objects", "Objects that can be got", &StoreCounters::objects, true},
    Counter{"sessions", "Clients connected", &StoreCounters::sessions, true},
    Counter{"reading", "Gets under way", &StoreCounters::reading, true},
    Counter{"writing", "Objects placed and not published", &StoreCounters::writing, true},
    Counter{"hits_total", "Gets that found their object", &StoreCounters::hits},
    Counter{"misses_total", "Gets that found none", &StoreCounters::misses},
    Counter{"got_bytes_total", "Bytes sent to clients", &StoreCounters::got_bytes},
    Counter{"failed_gets_total", "Gets whose bytes did not arrive", &StoreCounters::failed_gets},
    Counter{"puts_total", "Objects published", &StoreCounters::puts},
    Counter{"put_bytes_total", "Bytes of objects published", &StoreCounters::put_bytes},
    Counter{"refused_puts_total", "Puts refused for lack of room", &StoreCounters::refused_puts},
    Counter{"bad_puts_total", "Objects that were not what they said", &StoreCounters::bad_puts},
    Counter{"lost_puts_total", "Puts whose writer went away", &StoreCounters::lost_puts},
    Counter{"evictions_total", "Objects that gave way to others", &StoreCounters::evictions},
    Counter{"removals_total", "Objects removed on request", &StoreCounters::removals},
    Counter{"breaches_total", "Connections that broke the protocol", &StoreCounters::breaches},
};

void Put(WireWriter& out, const BlockKey& key) {
  for (const uint8_t byte : key.bytes) out.Put(byte);
}
BlockKey GetKey(WireReader& in) {
  BlockKey key;
  for (uint8_t& byte : key.bytes) byte = in.Get<uint8_t>();
  return key;
}
void PutKeys(WireWriter& out, const std::vector<BlockKey>& keys) {
  out.PutList(keys, [](WireWriter& w, const BlockKey& key) { Put(w, key); });
}
std::vector<BlockKey> GetKeys(WireReader& in) {
  auto keys = in.GetList<BlockKey>(sizeof(BlockKey), GetKey);
  in.Require(keys.size() <= kMaxStoreKeys);
  return keys;
}
Bytes GetBytes(WireReader& in) { return Bytes(in.GetCount()); }

void PutVersion(WireWriter& out) {
  out.Put(kMagic);
  out.Put(kStoreProtocol);
}

struct Writer {
  WireWriter& out;

  void operator()(const StoreHello& m) {
    PutVersion(out);
    out.Put(m.object_version);
    out.Put(m.node.value);
    out.Put(std::string_view(m.address));
    out.Put(std::string_view(m.region));
  }
  void operator()(const StoreGet& m) {
    out.Put(m.call);
    Put(out, m.key);
    out.Put(m.offset.value);
    out.Put(m.room.value);
    out.Put(static_cast<uint8_t>(m.skip.has_value()));
    if (m.skip) out.Put(m.skip->value);
  }
  void operator()(const StorePut& m) {
    out.Put(m.call);
    Put(out, m.key);
    out.Put(m.length.value);
    Put(out, m.parent);
  }
  void operator()(const StoreCommit& m) {
    out.Put(m.call);
    out.Put(m.sum);
  }
  void operator()(const StoreCancel& m) { out.Put(m.call); }
  void operator()(const StoreHas& m) {
    out.Put(m.call);
    PutKeys(out, m.keys);
  }
  void operator()(const StoreRemove& m) {
    out.Put(m.call);
    PutKeys(out, m.keys);
  }
  void operator()(const StoreClear& m) { out.Put(m.call); }
  void operator()(const StoreQuery&) {}
  void operator()(const StorePing& m) { out.Put(m.number); }
  void operator()(const StoreWelcome& m) {
    PutVersion(out);
    out.Put(m.object_version);
    out.Put(m.node.value);
    out.Put(std::string_view(m.address));
    out.Put(std::string_view(m.region));
    out.Put(m.largest.value);
  }
  void operator()(const StoreReject& m) {
    PutVersion(out);
    out.Put(std::string_view(m.reason));
  }
  void operator()(const StoreAnswer& m) {
    out.Put(m.call);
    out.Put(m.status);
    out.Put(m.value);
  }
  void operator()(const StoreHave& m) {
    out.Put(m.call);
    out.Put(static_cast<uint32_t>(m.have.size()));
    for (const bool have : m.have) out.Put(static_cast<uint8_t>(have));
  }
  void operator()(const StoreCounters& m) {
    for (const Counter& counter : kCounters) out.Put(m.*counter.value);
  }
};

// Reads the fields of the alternative whose pointer it is given, which is null.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : in_(bytes) {}

  bool Done() const { return in_.Done(); }
  bool ok() const { return in_.ok(); }
  uint32_t other_version() const { return other_version_; }

  StoreMessage Next() {
    StoreMessage message;
    const size_t kind = in_.Get<uint8_t>();
    Choose(message, kind, std::make_index_sequence<std::variant_size_v<StoreMessage>>());
    in_.Require(kind < std::variant_size_v<StoreMessage>);
    return message;
  }

 private:
  template <size_t... kKinds>
  void Choose(StoreMessage& message, size_t kind, std::index_sequence<kKinds...>) {
    (void)((kind == kKinds && (Read(message.emplace<kKinds>()), true)) || ...);
  }

  void ReadVersion() {
    in_.Require(in_.Get<uint32_t>() == kMagic);
    const auto version = in_.Get<uint32_t>();
    if (in_.ok() && version != kStoreProtocol) other_version_ = version;
    in_.Require(version == kStoreProtocol);
  }
  void Read(StoreHello& m) {
    ReadVersion();
    m.object_version = in_.Get<uint16_t>();
    m.node = {in_.Get<uint64_t>()};
    m.address = in_.GetText();
    m.region = in_.GetText();
  }
  void Read(StoreGet& m) {
    m.call = in_.Get<uint64_t>();
    m.key = GetKey(in_);
    m.offset = GetBytes(in_);
    m.room = GetBytes(in_);
    if (in_.GetBool()) m.skip = GetBytes(in_);
  }
  void Read(StorePut& m) {
    m.call = in_.Get<uint64_t>();
    m.key = GetKey(in_);
    m.length = GetBytes(in_);
    m.parent = GetKey(in_);
  }
  void Read(StoreCommit& m) {
    m.call = in_.Get<uint64_t>();
    m.sum = in_.Get<uint64_t>();
  }
  void Read(StoreCancel& m) { m.call = in_.Get<uint64_t>(); }
  void Read(StoreHas& m) {
    m.call = in_.Get<uint64_t>();
    m.keys = GetKeys(in_);
  }
  void Read(StoreRemove& m) {
    m.call = in_.Get<uint64_t>();
    m.keys = GetKeys(in_);
  }
  void Read(StoreClear& m) { m.call = in_.Get<uint64_t>(); }
  void Read(StoreQuery&) {}
  void Read(StorePing& m) { m.number = in_.Get<uint64_t>(); }
  void Read(StoreWelcome& m) {
    ReadVersion();
    m.object_version = in_.Get<uint16_t>();
    m.node = {in_.Get<uint64_t>()};
    m.address = in_.GetText();
    m.region = in_.GetText();
    m.largest = GetBytes(in_);
  }
  void Read(StoreReject& m) {
    ReadVersion();
    m.reason = in_.GetText();
  }
  void Read(StoreAnswer& m) {
    m.call = in_.Get<uint64_t>();
    m.status = in_.Get<StoreStatus>(kStoreStatuses);
    m.value = in_.Get<uint64_t>();
  }
  void Read(StoreHave& m) {
    m.call = in_.Get<uint64_t>();
    m.have = in_.GetList<bool>(1, [](WireReader& r) { return r.GetBool(); });
    in_.Require(m.have.size() <= kMaxStoreKeys);
  }
  void Read(StoreCounters& m) {
    for (const Counter& counter : kCounters) m.*counter.value = in_.GetCount();
  }

  WireReader in_;
  uint32_t other_version_ = 0;
};

}  // namespace

const char* StoreStatusText(StoreStatus status) {
  switch (status) {
    case StoreStatus::kOk:
      return "done";
    case StoreStatus::kMissing:
      return "the pool has no such object";
    case StoreStatus::kPresent:
      return "the object is there already";
    case StoreStatus::kTooLarge:
      return "the object is larger than the place for it, or has no such part";
    case StoreStatus::kNoRoom:
      return "all that could give way is in use; give the node more --memory";
    case StoreStatus::kBad:
      return "the object is not what its header says";
    case StoreStatus::kCancelled:
      return "cancelled";
    case StoreStatus::kFailed:
      return "the bytes did not arrive";
  }
  return "?";
}

std::vector<std::byte> EncodeStoreFrame(std::span<const StoreMessage> messages) {
  WireWriter out;
  for (const StoreMessage& message : messages) {
    out.Put(static_cast<uint8_t>(message.index()));
    std::visit(Writer{out}, message);
  }
  return out.Take();
}

Result<std::vector<StoreMessage>> DecodeStoreFrame(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  std::vector<StoreMessage> messages;
  while (reader.ok() && !reader.Done() && messages.size() < kMaxStoreMessages) {
    messages.push_back(reader.Next());
  }
  if (reader.other_version() != 0) {
    return Error{Code::kInvalidArgument,
                 Format("it speaks version {} of the store's protocol, this process version {}; "
                        "run one release of divisi everywhere",
                        reader.other_version(), kStoreProtocol)};
  }
  if (!reader.Done() || messages.empty()) {
    return Error{Code::kDataLoss, "what came is no message of the store's protocol"};
  }
  return messages;
}

std::string StoreMetrics(const StoreCounters& counters) {
  std::string text;
  for (const Counter& counter : kCounters) {
    text += Format("# HELP divisi_store_{0} {1}.\n# TYPE divisi_store_{0} {2}\n", counter.name,
                   counter.help, counter.gauge ? "gauge" : "counter");
    text += Format("divisi_store_{} {}\n", counter.name, counters.*counter.value);
  }
  return text;
}

}  // namespace divisi
