#include "divisi/kv/sha256.h"

#include <openssl/evp.h>

#include <string_view>

#include "divisi/core/check.h"

namespace divisi {
namespace {

// OpenSSL looks an algorithm up by name and takes locks doing so, which costs more than hashing a
// page does; this is done once. The object is immutable.
const EVP_MD* Algorithm() {
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  CHECK(algorithm != nullptr, "OpenSSL has no SHA256");
  return algorithm;
}

EVP_MD_CTX* Context(void* context) { return static_cast<EVP_MD_CTX*>(context); }

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  CHECK(context_ != nullptr && EVP_DigestInit_ex2(Context(context_), Algorithm(), nullptr) == 1);
}
Sha256::~Sha256() { EVP_MD_CTX_free(Context(context_)); }

void Sha256::Add(std::span<const std::byte> bytes) {
  CHECK(EVP_DigestUpdate(Context(context_), bytes.data(), bytes.size()) == 1);
}

Sha256::Digest Sha256::Finish() {
  Digest digest;
  unsigned size = 0;
  CHECK(EVP_DigestFinal_ex(Context(context_), digest.data(), &size) == 1 && size == digest.size());
  return digest;
}

std::string Sha256::FinishHex() { return Hex(Finish()); }

std::string Hex(std::span<const uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const uint8_t byte : bytes) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}  // namespace divisi
