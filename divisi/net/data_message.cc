#include "divisi/net/data_message.h"

#include "divisi/core/wire.h"
#include "divisi/net/wire.h"

namespace divisi {
namespace {

enum Type : uint32_t { kHello = 0x48766944, kWelcome = 2, kWrite = 3, kAcks = 4 };  // "DivH".
constexpr uint32_t kVersion = 1;

void Put(std::string& out, const HelloMessage& hello) {
  PutU32(out, kHello);
  PutU32(out, kVersion);
  PutU64(out, hello.from.value);
  PutU64(out, hello.to.value);
  PutU64(out, hello.key);
  PutU64(out, hello.memory.pid);
  PutU64(out, hello.memory.proof_address);
  PutU64(out, hello.memory.proof);
}
void Put(std::string& out, const WelcomeMessage& welcome) {
  PutU32(out, kWelcome);
  PutU32(out, static_cast<uint32_t>(welcome.refusal));
  PutU32(out, welcome.reads ? 1 : 0);
}
void Put(std::string& out, const WriteMessage& write) {
  PutU32(out, kWrite);
  PutU64(out, write.sequence);
  PutU64(out, write.key);
  PutU64(out, static_cast<uint64_t>(write.offset.value));
  PutU64(out, static_cast<uint64_t>(write.size.value));
  PutU64(out, write.source);
}
void Put(std::string& out, const AcksMessage& message) {
  CHECK(message.acks.size() <= kMaxAcks);
  PutU32(out, kAcks);
  PutU32(out, static_cast<uint32_t>(message.acks.size()));
  for (const Ack& ack : message.acks) {
    PutU64(out, ack.sequence);
    PutU32(out, static_cast<uint32_t>(ack.refusal));
  }
}

Error Bad(std::string_view bytes) {
  return {Code::kDataLoss, Format("{} bytes that are no message of a data connection; does another "
                                  "program connect to this port?",
                                  bytes.size())};
}

// Of a number that a peer sent. Empty: none that is known.
bool IsRefusal(uint32_t number) {
  return number <= static_cast<uint32_t>(DataRefusal::kIncomplete);
}

Result<DataMessage> ReadAcks(WireReader& reader, std::string_view bytes) {
  AcksMessage message;
  const uint32_t count = reader.Get<uint32_t>();
  if (!reader.ok() || count > kMaxAcks) return Bad(bytes);
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t sequence = reader.Get<uint64_t>();
    const uint32_t refusal = reader.Get<uint32_t>();
    if (!reader.ok() || !IsRefusal(refusal)) return Bad(bytes);
    message.acks.push_back({sequence, static_cast<DataRefusal>(refusal)});
  }
  if (!reader.Done()) return Bad(bytes);
  return DataMessage(std::move(message));
}

Result<DataMessage> ReadHello(WireReader& reader, std::string_view bytes) {
  const uint32_t version = reader.Get<uint32_t>();
  if (reader.ok() && version != kVersion) {
    return Error{Code::kInvalidArgument,
                 Format("a data connection of protocol version {}; this program speaks {}", version,
                        kVersion)};
  }
  HelloMessage hello;
  hello.from.value = reader.Get<uint64_t>();
  hello.to.value = reader.Get<uint64_t>();
  hello.key = reader.Get<uint64_t>();
  hello.memory.pid = reader.Get<uint64_t>();
  hello.memory.proof_address = reader.Get<uint64_t>();
  hello.memory.proof = reader.Get<uint64_t>();
  if (!reader.Done()) return Bad(bytes);
  return DataMessage(hello);
}

Result<DataMessage> ReadWrite(WireReader& reader, std::string_view bytes) {
  WriteMessage write;
  write.sequence = reader.Get<uint64_t>();
  write.key = reader.Get<uint64_t>();
  write.offset.value = static_cast<int64_t>(reader.Get<uint64_t>());
  write.size.value = static_cast<int64_t>(reader.Get<uint64_t>());
  write.source = reader.Get<uint64_t>();
  if (!reader.Done() || write.offset.value < 0 || write.size.value < 0) return Bad(bytes);
  return DataMessage(write);
}

}  // namespace

const char* RefusalText(DataRefusal refusal) {
  switch (refusal) {
    case DataRefusal::kNone:
      return "taken";
    case DataRefusal::kOtherProcess:
      return "another process, or another life of it, listens at that address";
    case DataRefusal::kUnknownRegion:
      return "it has no region with that key: the descriptor is of an earlier one";
    case DataRefusal::kOutOfRange:
      return "beyond the region";
    case DataRefusal::kRefused:
      return "it refuses this process: it was declared dead, and must come back under a new id";
    case DataRefusal::kIncomplete:
      return "the bytes did not arrive whole";
  }
  return "unknown";
}

std::string EncodeData(const DataMessage& message) {
  std::string out;
  std::visit([&out](const auto& kind) { Put(out, kind); }, message);
  return out;
}

Result<DataMessage> DecodeData(std::string_view bytes) {
  WireReader reader(bytes);
  switch (reader.Get<uint32_t>()) {
    case kHello:
      return ReadHello(reader, bytes);
    case kWelcome: {
      const uint32_t refusal = reader.Get<uint32_t>();
      const uint32_t reads = reader.Get<uint32_t>();
      if (!reader.Done() || !IsRefusal(refusal) || reads > 1) return Bad(bytes);
      return DataMessage(WelcomeMessage{static_cast<DataRefusal>(refusal), reads == 1});
    }
    case kWrite:
      return ReadWrite(reader, bytes);
    case kAcks:
      return ReadAcks(reader, bytes);
    default:
      return Bad(bytes);
  }
}

}  // namespace divisi
