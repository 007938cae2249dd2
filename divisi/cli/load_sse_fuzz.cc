// Any bytes as an event stream: the same events whole as byte by byte.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "divisi/cli/load_sse.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::string whole, split;
  divisi::SseParser parser;
  (void)parser.Feed(bytes, [&](std::string_view event) { whole.append(event) += '\0'; });
  divisi::SseParser one_by_one;
  for (size_t i = 0; i < size; ++i) {
    (void)one_by_one.Feed(bytes.substr(i, 1),
                          [&](std::string_view event) { split.append(event) += '\0'; });
  }
  CHECK(whole == split);
  return 0;
}
