// Little-endian fixed-width fields of the data plane's own bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace divisi {

void PutU32(std::string& out, uint32_t value);
void PutU64(std::string& out, uint64_t value);

// Reads fields from the front. Past the end it gives zeros and is no longer ok().
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  uint32_t U32() { return static_cast<uint32_t>(Read(4)); }
  uint64_t U64() { return Read(8); }
  bool ok() const { return ok_; }
  bool AtEnd() const { return ok_ && bytes_.empty(); }

 private:
  uint64_t Read(size_t width);

  std::string_view bytes_;
  bool ok_ = true;
};

// FNV-1a: tells damaged bytes from whole ones; no defence against an author.
// Source: Fowler, Noll, Vo; draft-eastlake-fnv.
uint64_t Fnv1a(std::string_view bytes);

}  // namespace divisi
