// What keys are hashed from: fields with their lengths, so that no two lists of fields give the
// same bytes. Included by the files that make keys alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "divisi/core/ids.h"
#include "divisi/kv/block_key.h"
#include "divisi/kv/sha256.h"

namespace divisi {

// SHA-256 over a tag, which says what the key is of, and the fields; each is its length (u32,
// little-endian) and its bytes.
class KeyFields {
 public:
  explicit KeyFields(std::string_view tag) { Bytes(std::as_bytes(std::span(tag))); }

  void Bytes(std::span<const std::byte> field) {
    Number<uint32_t>(static_cast<uint32_t>(field.size()));
    hash_.Add(field);
  }
  void Text(std::string_view field) { Bytes(std::as_bytes(std::span(field))); }
  void Key(const BlockKey& field) { Bytes(std::as_bytes(std::span(field.bytes))); }
  // u64, little-endian.
  void Whole(uint64_t field) {
    Number<uint32_t>(8);
    Number(field);
  }
  // Each u32, little-endian; one field.
  void Tokens(std::span<const TokenId> field) {
    Number<uint32_t>(static_cast<uint32_t>(4 * field.size()));
    std::array<std::byte, 4 * kBlockTokens> bytes;  // A call costs more than hashing four bytes.
    while (!field.empty()) {
      const auto some = field.first(std::min<size_t>(field.size(), kBlockTokens));
      for (size_t i = 0; i < some.size(); ++i) Put(static_cast<uint32_t>(some[i]), &bytes[4 * i]);
      hash_.Add(std::span(bytes).first(4 * some.size()));
      field = field.subspan(some.size());
    }
  }

  BlockKey Finish() { return {hash_.Finish()}; }

 private:
  template <typename T>
  static void Put(T value, std::byte* to) {
    for (size_t b = 0; b < sizeof(T); ++b) to[b] = static_cast<std::byte>(value >> (8 * b));
  }
  template <typename T>
  void Number(T value) {
    std::array<std::byte, sizeof(T)> bytes;
    Put(value, bytes.data());
    hash_.Add(bytes);
  }

  Sha256 hash_;
};

}  // namespace divisi
