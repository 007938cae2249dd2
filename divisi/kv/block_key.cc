#include "divisi/kv/block_key.h"

#include <string_view>

#include "divisi/core/check.h"
#include "divisi/kv/sha256.h"

namespace divisi {
namespace {

// Fields with their lengths, so that no two lists of fields give the same bytes.
class FieldHasher {
 public:
  explicit FieldHasher(std::string_view tag) { Field(tag.data(), tag.size()); }

  void Field(const void* data, size_t size) {
    const uint32_t n = static_cast<uint32_t>(size);
    const std::array<uint8_t, 4> length = {static_cast<uint8_t>(n), static_cast<uint8_t>(n >> 8),
                                           static_cast<uint8_t>(n >> 16),
                                           static_cast<uint8_t>(n >> 24)};
    Update(length.data(), length.size());
    Update(data, size);
  }

  BlockKey Finish() { return {hash_.Finish()}; }

 private:
  void Update(const void* data, size_t size) {
    hash_.Add({static_cast<const std::byte*>(data), size});
  }

  Sha256 hash_;
};

}  // namespace

std::string BlockKey::Hex() const { return divisi::Hex(bytes); }

BlockKey RootKey(const KeySpace& space) {
  FieldHasher hasher("divisi.key-space.1");
  hasher.Field(space.model_fingerprint.data(), space.model_fingerprint.size());
  hasher.Field(space.adapter.data(), space.adapter.size());
  hasher.Field(space.page_format.data(), space.page_format.size());
  hasher.Field(space.tenant_salt.data(), space.tenant_salt.size());
  return hasher.Finish();
}

BlockKey PageKey(const BlockKey& parent, std::span<const TokenId> tokens) {
  CHECK(tokens.size() == kBlockTokens, "a page of {} tokens", tokens.size());
  std::array<uint8_t, 4 * kBlockTokens> bytes;
  for (size_t i = 0; i < kBlockTokens; ++i) {
    const uint32_t token = static_cast<uint32_t>(tokens[i]);
    for (int b = 0; b < 4; ++b) bytes[4 * i + b] = static_cast<uint8_t>(token >> (8 * b));
  }
  FieldHasher hasher("divisi.page.1");
  hasher.Field(parent.bytes.data(), parent.bytes.size());
  hasher.Field(bytes.data(), bytes.size());
  return hasher.Finish();
}

void ExtendKeys(const BlockKey& root, std::span<const TokenId> tokens, size_t pages,
                std::vector<BlockKey>& keys) {
  CHECK(pages * kBlockTokens <= tokens.size(), "{} pages of {} tokens", pages, tokens.size());
  while (keys.size() < pages) {
    const BlockKey& parent = keys.empty() ? root : keys.back();
    keys.push_back(PageKey(parent, tokens.subspan(keys.size() * kBlockTokens, kBlockTokens)));
  }
}

}  // namespace divisi
