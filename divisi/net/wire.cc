#include "divisi/net/wire.h"

namespace divisi {
namespace {

void Put(std::string& out, uint64_t value, int width) {
  for (int i = 0; i < width; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

}  // namespace

void PutU32(std::string& out, uint32_t value) { Put(out, value, 4); }
void PutU64(std::string& out, uint64_t value) { Put(out, value, 8); }

uint64_t Fnv1a(std::string_view bytes) {
  uint64_t hash = 14695981039346656037ULL;
  for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211ULL;
  return hash;
}

}  // namespace divisi
