// SHA-256, by OpenSSL, which sha256.cc alone includes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace divisi {

class Sha256 {
 public:
  using Digest = std::array<uint8_t, 32>;
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Add(std::span<const std::byte> bytes);
  // Once, last.
  Digest Finish();
  std::string FinishHex();

 private:
  void* context_;  // EVP_MD_CTX
};

// "00ff...": two lower-case digits a byte.
std::string Hex(std::span<const uint8_t> bytes);

}  // namespace divisi
