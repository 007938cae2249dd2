#include "divisi/net/region.h"

#include "divisi/core/wire.h"
#include "divisi/net/wire.h"

namespace divisi {
namespace {

constexpr uint32_t kMagic = 0x52766944;  // "DivR".
constexpr uint32_t kVersion = 1;
constexpr size_t kCheckedBytes = kRegionDescriptorBytes - 8;

}  // namespace

std::string EncodeRegion(const RegionDescriptor& region) {
  std::string out;
  PutU32(out, kMagic);
  PutU32(out, kVersion);
  PutU64(out, region.owner.value);
  PutU64(out, region.key);
  PutU64(out, static_cast<uint64_t>(region.size.value));
  PutU64(out, Fnv1a(out));
  CHECK(out.size() == kRegionDescriptorBytes);
  return out;
}

Result<RegionDescriptor> DecodeRegion(std::string_view bytes) {
  WireReader reader(bytes);
  const uint32_t magic = reader.Get<uint32_t>();
  const uint32_t version = reader.Get<uint32_t>();
  if (!reader.ok() || magic != kMagic) {
    return Error{Code::kDataLoss,
                 Format("{} bytes that are no region descriptor of Divisi", bytes.size())};
  }
  if (version != kVersion) {
    return Error{Code::kInvalidArgument,
                 Format("a region descriptor of version {}; this program knows version {}: run the "
                        "same release on all hosts",
                        version, kVersion)};
  }
  RegionDescriptor region;
  region.owner.value = reader.Get<uint64_t>();
  region.key = reader.Get<uint64_t>();
  region.size.value = static_cast<int64_t>(reader.Get<uint64_t>());
  const uint64_t sum = reader.Get<uint64_t>();
  if (!reader.Done() || sum != Fnv1a(bytes.substr(0, kCheckedBytes)) || region.size.value < 0) {
    return Error{Code::kDataLoss, Format("a damaged region descriptor of {} bytes", bytes.size())};
  }
  return region;
}

}  // namespace divisi
