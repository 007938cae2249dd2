// What a process tells others about memory that they may write to: the descriptor that travels with
// its announcement, over the control connection alone. It names the process's one life and carries
// a random key: who does not know it is refused, and so is a writer that still holds the descriptor
// of an earlier life, or of a region given up since. It holds no addresses: writes name offsets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "divisi/core/ids.h"
#include "divisi/core/result.h"
#include "divisi/core/units.h"

namespace divisi {

struct RegionDescriptor {
  NodeId owner;
  uint64_t key = 0;  // Drawn when the region was registered. Who knows it may write: don't log it.
  Bytes size;
  friend bool operator==(const RegionDescriptor&, const RegionDescriptor&) = default;
};

// kRegionDescriptorBytes bytes: magic and version, owner, key, size, check sum; little endian.
inline constexpr size_t kRegionDescriptorBytes = 40;
std::string EncodeRegion(const RegionDescriptor& region);

// Errors: kInvalidArgument for another version; kDataLoss for anything else that is not the
// encoding of a descriptor. Each says what stands there.
Result<RegionDescriptor> DecodeRegion(std::string_view bytes);

// Whether [offset, offset + bytes) lies in a region of `size`; no sum overflows.
constexpr bool InRegion(Bytes size, Bytes offset, Bytes bytes) {
  return offset.value >= 0 && bytes.value >= 0 && offset.value <= size.value &&
         bytes.value <= size.value - offset.value;
}

}  // namespace divisi
