// ParseSafetensors on any bytes: it refuses them or gives views that lie within them.
#include <cstring>
#include <string>

#include "divisi/model/safetensors.h"

namespace divisi {
namespace {

void ParseAndCheck(std::span<const std::byte> file) {
  const auto parsed = ParseSafetensors(file);
  if (!parsed) {
    CHECK(parsed.error().code == Code::kDataLoss);
    CHECK(!parsed.error().message.empty() && parsed.error().message.size() < 2000);
    return;
  }
  for (const auto& [name, view] : parsed->tensors) {
    int64_t bytes = ElementBytes(view.type);
    for (const int64_t extent : view.shape) bytes *= extent;
    CHECK(static_cast<size_t>(bytes) == view.bytes.size());
    // An empty view may point to the end.
    const size_t offset = static_cast<size_t>(view.bytes.data() - file.data());
    CHECK(offset <= file.size() && view.bytes.size() <= file.size() - offset);
    CHECK(!parsed->other_types.contains(name));
  }
}

}  // namespace
}  // namespace divisi

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  divisi::ParseAndCheck(bytes);
  // Again as header text, a zero byte and data, with the length put right: changes that a mutation
  // makes to the text then get past the length.
  const void* zero = std::memchr(data, 0, size);
  if (size == 0 || zero == nullptr) return 0;
  const size_t header = static_cast<size_t>(static_cast<const uint8_t*>(zero) - data);
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header >> (8 * i));
  file.append(reinterpret_cast<const char*>(data), header);
  file.append(reinterpret_cast<const char*>(data) + header + 1, size - header - 1);
  divisi::ParseAndCheck(std::as_bytes(std::span(file)));
  return 0;
}
