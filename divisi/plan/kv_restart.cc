#include "divisi/plan/kv_restart.h"

#include <algorithm>

#include "divisi/core/check.h"
#include "divisi/plan/flow.h"

namespace divisi {

PageLayout LayoutOf(Tokens tokens, Bytes state_per_token, int layers, int parts) {
  CHECK(tokens.value >= 1 && layers >= 1 && parts >= 1, "{} tokens, {} layers, {} parts",
        tokens.value, layers, parts);
  return {.tokens = tokens,
          .bytes = Times(state_per_token, static_cast<double>(tokens.value)),
          .segments = int64_t{layers} * parts};
}

RestartRead ReadAfterRestart(const PageLayout& page, Tokens read, Tokens matched) {
  CHECK(page.tokens.value >= 1, "pages of {} tokens", page.tokens.value);
  RestartRead result;
  const int64_t asked = std::max<int64_t>(read.value, 0);
  const bool partial = asked % page.tokens.value != 0;
  result.pages_read = asked / page.tokens.value + (partial ? 1 : 0);
  result.pages_used =
      std::min(result.pages_read, std::max<int64_t>(matched.value, 0) / page.tokens.value);
  result.read = Times(page.bytes, static_cast<double>(result.pages_read));
  result.used = Times(page.bytes, static_cast<double>(result.pages_used));
  return result;
}

}  // namespace divisi
