#include "divisi/core/check.h"
#include "divisi/kv/store_message.h"

// What decodes, encodes to the same bytes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  const auto messages = divisi::DecodeStoreFrame({bytes, size});
  if (!messages) return 0;
  const std::vector<std::byte> again = divisi::EncodeStoreFrame(*messages);
  CHECK(again.size() == size && std::equal(again.begin(), again.end(), bytes));
  return 0;
}
