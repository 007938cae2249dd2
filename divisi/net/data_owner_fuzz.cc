// DataOwner under any messages of any connections: bytes are placed, or fetched, only into the
// region, and only for a connection whose Hello named this process and the region's key. Input:
// events of [connection][kind and length, 2 bytes][the message's bytes].
#include <map>

#include "divisi/net/data_owner.h"

namespace divisi {
namespace {

constexpr NodeId kSelf{2};
constexpr uint64_t kKey = 0x0123456789ABCDEF;

class Run {
 public:
  Run() : owner_({.self = kSelf}, [this](auto&&... read) { return Read(read...); }) {
    owner_.AddRegion(kKey, memory_);
  }

  void Event(uint64_t connection, int kind, std::string_view message) {
    speaker_ = connection;
    switch (kind) {
      case 0:
        if (!owner_.Knows(connection))
          knows_[connection] = false, owner_.Accepted(connection, now_);
        return;
      case 1:
        Greet(connection, message);
        return owner_.Receive(connection, message, true);
      case 2: {
        const size_t bytes = SizeOf(message);
        std::byte* const to = owner_.Place(connection, message, bytes);
        if (to == nullptr) return;  // Dropped: no message comes of it.
        CheckTarget(connection, to, bytes);
        return owner_.Receive(connection, message, true);
      }
      case 3:
        knows_.erase(connection);
        return owner_.Closed(connection);
      case 4:
        now_ += Seconds(1);
        return owner_.CheckTime(now_);
      case 5:
        return owner_.Refuse({connection});
      default:
        for (const auto& action : owner_.TakeActions()) {
          if (!action.close.empty()) owner_.Closed(action.connection);
        }
    }
  }

 private:
  static size_t SizeOf(std::string_view message) {
    const auto decoded = DecodeData(message);
    const auto* write = decoded ? std::get_if<WriteMessage>(&*decoded) : nullptr;
    return write == nullptr ? 1 : static_cast<size_t>(write->size.value);
  }
  void Greet(uint64_t connection, std::string_view message) {
    const auto decoded = DecodeData(message);
    const auto* hello = decoded ? std::get_if<HelloMessage>(&*decoded) : nullptr;
    if (hello != nullptr && hello->to == kSelf && hello->key == kKey) knows_[connection] = true;
  }
  void CheckTarget(uint64_t connection, const std::byte* to, size_t bytes) {
    CHECK(knows_[connection]);
    CHECK(to >= memory_.data() && bytes <= memory_.size());
    CHECK(static_cast<size_t>(to - memory_.data()) <= memory_.size() - bytes);
  }
  bool Read(const PeerMemory& peer, uint64_t, std::byte* to, size_t bytes) {
    CHECK(knows_[speaker_]);
    if (bytes > 0) CheckTarget(speaker_, to, bytes);
    return peer.pid == 1;
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(1000);
  std::map<uint64_t, bool> knows_;  // By connection: its Hello had the key.
  uint64_t speaker_ = 0;
  Seconds now_;
  DataOwner owner_;
};

}  // namespace
}  // namespace divisi

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  divisi::Run run;
  while (rest.size() >= 3) {
    const auto connection = static_cast<uint64_t>(rest[0] & 7);
    const int kind = rest[1] & 7;
    const size_t length = std::min<size_t>(static_cast<uint8_t>(rest[2]), rest.size() - 3);
    run.Event(connection, kind, rest.substr(3, length));
    rest.remove_prefix(3 + length);
  }
  return 0;
}
