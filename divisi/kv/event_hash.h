// The name of a block of KV in cache events, in whatever form an engine sends it: a whole number
// (vLLM by default, Dynamo), a signed one (SGLang) or the bytes of a digest (vLLM on request, and
// this project, whose names are BlockKeys).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "divisi/kv/block_key.h"

namespace divisi {

// Two names of one block are equal where they have the same form. Signed and unsigned numbers are
// one form, told apart by their bits alone: a wire that has no type for signed whole numbers makes
// of SGLang's -1 and of 2^64 - 1 what it likes.
class EventHash {
 public:
  EventHash() = default;
  explicit EventHash(uint64_t number) : number_(number) {}
  explicit EventHash(int64_t number)
      : number_(static_cast<uint64_t>(number)), negative_(number < 0) {}
  explicit EventHash(std::string bytes) : bytes_(std::move(bytes)), is_bytes_(true) {}
  explicit EventHash(const BlockKey& key)
      : EventHash(std::string(reinterpret_cast<const char*>(key.bytes.data()), key.bytes.size())) {}

  bool is_bytes() const { return is_bytes_; }
  // Of a number: how it came, and goes out again.
  bool negative() const { return negative_; }
  const std::string& bytes() const { return bytes_; }  // Empty of a number.
  uint64_t number() const { return number_; }          // 0 of bytes.

  // The number; of bytes their last 8 as a big-endian one, as vLLM and llm-d shorten digests.
  uint64_t Short() const {
    if (!is_bytes_) return number_;
    uint64_t number = 0;
    const size_t first = bytes_.size() > 8 ? bytes_.size() - 8 : 0;
    for (const char c : std::string_view(bytes_).substr(first)) {
      number = number << 8 | static_cast<uint8_t>(c);
    }
    return number;
  }
  // The key that it is the bytes of, of a block of this project.
  std::optional<BlockKey> Key() const {
    BlockKey key;
    if (bytes_.size() != key.bytes.size()) return std::nullopt;
    std::memcpy(key.bytes.data(), bytes_.data(), bytes_.size());
    return key;
  }
  // Decimal, as the engines log it, or the bytes in hexadecimal.
  std::string Text() const;

  friend bool operator==(const EventHash& a, const EventHash& b) {
    return a.number_ == b.number_ && a.is_bytes_ == b.is_bytes_ && a.bytes_ == b.bytes_;
  }

 private:
  uint64_t number_ = 0;
  std::string bytes_;
  bool is_bytes_ = false;
  bool negative_ = false;
};

struct EventHashHash {
  size_t operator()(const EventHash& hash) const { return hash.Short(); }
};

}  // namespace divisi
