// DecodeData on any bytes: it refuses them or gives a message that encodes to the same bytes.
#include "divisi/net/data_message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto message = divisi::DecodeData(bytes);
  if (message) {
    CHECK(divisi::EncodeData(*message) == bytes);
  } else {
    CHECK(!message.error().message.empty());
  }
  return 0;
}
