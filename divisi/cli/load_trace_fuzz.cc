// Any bytes as a trace: an error or a list of requests that can be planned, never a crash.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "divisi/cli/load_trace.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto requests = divisi::ReadTrace(text, "fuzz", {.scale = 0.5});
  if (!requests) return 0;
  for (const divisi::PlannedRequest& request : *requests) {
    CHECK(request.arrival.value >= 0 && request.InputTokens() >= 1 && request.output_tokens >= 1);
  }
  return 0;
}
