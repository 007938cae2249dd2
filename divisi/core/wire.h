// Bytes of messages between processes: whole numbers little-endian, text and lists behind their
// length. A reader of foreign bytes never reads beyond them: it keeps that it failed, and gives
// zeros from then on, so that a message reads as a list of lines and is judged once, at its end.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace divisi {

class WireWriter {
 public:
  template <typename T>
  requires std::is_integral_v<T> || std::is_enum_v<T>
  void Put(T value) {
    auto bits = static_cast<uint64_t>(value);
    for (size_t i = 0; i < sizeof(T); ++i, bits >>= 8) {
      bytes_.push_back(static_cast<std::byte>(bits & 0xff));
    }
  }
  void Put(double value) { Put(std::bit_cast<uint64_t>(value)); }
  void Put(float value) { Put(std::bit_cast<uint32_t>(value)); }
  void Put(std::string_view text) {
    Put(static_cast<uint32_t>(text.size()));
    const auto* data = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), data, data + text.size());
  }
  // The length, then put(*this, item) for each.
  template <typename T, typename Fn>
  void PutList(const std::vector<T>& list, Fn put) {
    Put(static_cast<uint32_t>(list.size()));
    for (const T& item : list) put(*this, item);
  }
  template <typename T, typename Fn>
  void PutOptional(const std::optional<T>& value, Fn put) {
    Put(static_cast<uint8_t>(value.has_value()));
    if (value) put(*this, *value);
  }
  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  explicit WireReader(std::string_view bytes) : rest_(std::as_bytes(std::span(bytes))) {}

  template <typename T>
  requires std::is_integral_v<T> T Get() {
    if (rest_.size() < sizeof(T)) return Fail<T>();
    uint64_t bits = 0;
    for (size_t i = 0; i < sizeof(T); ++i) bits |= std::to_integer<uint64_t>(rest_[i]) << (8 * i);
    rest_ = rest_.subspan(sizeof(T));
    return static_cast<T>(bits);
  }
  // A value of an enumeration that has `count` of them from 0.
  template <typename T>
  requires std::is_enum_v<T> T Get(int count) {
    const auto value = Get<uint8_t>();
    if (value >= count) return Fail<T>();
    return static_cast<T>(value);
  }
  bool GetBool() {
    const auto value = Get<uint8_t>();
    if (value > 1) Fail<bool>();
    return value == 1;
  }
  double GetDouble() { return std::bit_cast<double>(Get<uint64_t>()); }
  float GetFloat() { return std::bit_cast<float>(Get<uint32_t>()); }
  std::string GetText() {
    const auto size = Get<uint32_t>();
    if (size > rest_.size()) return Fail<std::string>();
    std::string text(reinterpret_cast<const char*>(rest_.data()), size);
    rest_ = rest_.subspan(size);
    return text;
  }
  // get(*this) for each item, of at least `item_bytes`: a length beyond what is there fails before
  // memory is taken for it.
  template <typename T, typename Fn>
  std::vector<T> GetList(size_t item_bytes, Fn get) {
    std::vector<T> list;
    const auto size = Get<uint32_t>();
    if (size * item_bytes > rest_.size()) {
      Fail<int>();
      return list;
    }
    list.reserve(size);
    for (uint32_t i = 0; i < size && ok_; ++i) list.push_back(get(*this));
    return list;
  }
  template <typename T, typename Fn>
  std::optional<T> GetOptional(Fn get) {
    if (!GetBool()) return std::nullopt;
    return get(*this);
  }

  // What was read makes no sense where it stands: as bytes that are missing.
  void Require(bool sense) {
    if (!sense) Fail<int>();
  }
  // A number of things: not negative, and so small that sums of them don't overflow.
  int64_t GetCount() {
    constexpr int64_t kMost = int64_t{1} << 52;
    const auto count = Get<int64_t>();
    Require(count >= 0 && count <= kMost);
    return ok_ ? count : 0;
  }

  bool ok() const { return ok_; }
  // Whether everything was well, and nothing is left.
  bool Done() const { return ok_ && rest_.empty(); }

 private:
  template <typename T>
  T Fail() {
    ok_ = false;
    rest_ = {};
    return T{};
  }
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

}  // namespace divisi
