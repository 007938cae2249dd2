#include "divisi/control/cluster_message.h"
#include "divisi/core/check.h"

// What decodes, encodes to the same bytes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  const auto message = divisi::DecodeClusterMessage({bytes, size});
  if (!message) return 0;
  const std::vector<std::byte> again = divisi::EncodeClusterMessage(*message);
  CHECK(again.size() == size && std::equal(again.begin(), again.end(), bytes));
  return 0;
}
