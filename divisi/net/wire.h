// What the data plane's own bytes need beside core/wire.h, which reads them: fields appended to
// text, and a check sum.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace divisi {

void PutU32(std::string& out, uint32_t value);
void PutU64(std::string& out, uint64_t value);

// FNV-1a: tells damaged bytes from whole ones; no defence against an author.
// Source: Fowler, Noll, Vo; draft-eastlake-fnv.
uint64_t Fnv1a(std::string_view bytes);

}  // namespace divisi
