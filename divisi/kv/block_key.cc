#include "divisi/kv/block_key.h"

#include <openssl/evp.h>

#include <string_view>

#include "divisi/core/check.h"

namespace divisi {
namespace {

// OpenSSL looks an algorithm up by name and takes locks doing so, which costs more than hashing a
// page does; this is done once. The object is immutable.
const EVP_MD* Sha256() {
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  CHECK(algorithm != nullptr, "OpenSSL has no SHA256");
  return algorithm;
}

// Fields with their lengths, so that no two lists of fields give the same bytes.
class FieldHasher {
 public:
  explicit FieldHasher(std::string_view tag) : context_(EVP_MD_CTX_new()) {
    CHECK(context_ != nullptr && EVP_DigestInit_ex2(context_, Sha256(), nullptr) == 1);
    Field(tag.data(), tag.size());
  }
  ~FieldHasher() { EVP_MD_CTX_free(context_); }
  FieldHasher(const FieldHasher&) = delete;
  FieldHasher& operator=(const FieldHasher&) = delete;

  void Field(const void* data, size_t size) {
    const uint32_t n = static_cast<uint32_t>(size);
    const std::array<uint8_t, 4> length = {static_cast<uint8_t>(n), static_cast<uint8_t>(n >> 8),
                                           static_cast<uint8_t>(n >> 16),
                                           static_cast<uint8_t>(n >> 24)};
    Update(length.data(), length.size());
    Update(data, size);
  }

  BlockKey Finish() {
    BlockKey key;
    unsigned size = 0;
    CHECK(EVP_DigestFinal_ex(context_, key.bytes.data(), &size) == 1 && size == key.bytes.size());
    return key;
  }

 private:
  void Update(const void* data, size_t size) { CHECK(EVP_DigestUpdate(context_, data, size) == 1); }

  EVP_MD_CTX* context_;
};

}  // namespace

std::string BlockKey::Hex() const {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const uint8_t byte : bytes) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

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
