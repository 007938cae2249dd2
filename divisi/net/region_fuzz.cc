// DecodeRegion on any bytes: it refuses them or gives a descriptor that encodes to the same bytes.
#include "divisi/net/region.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto region = divisi::DecodeRegion(bytes);
  if (region) {
    CHECK(region->size.value >= 0);
    CHECK(divisi::EncodeRegion(*region) == bytes);
  } else {
    CHECK(!region.error().message.empty());
  }
  return 0;
}
