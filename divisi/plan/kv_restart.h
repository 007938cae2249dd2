// KV that is read back by pages after a restart: what was read, and what of it replaces computing.
// Source: section 9.5.3.
#pragma once

#include <cstdint>

#include "divisi/core/units.h"

namespace divisi {

// A page of consecutive tokens, all layers.
struct PageLayout {
  Tokens tokens;         // >= 1
  Bytes bytes;           // tokens * state per token
  int64_t segments = 1;  // Contiguous pieces when layers are stored apart: K and V of each layer.

  Bytes Segment() const { return bytes / segments; }
};

// tokens: >= 1 of a page.   layers: >= 1.   parts: states that a layer keeps apart: 2 for K and V,
// 1 for a latent of MLA.
PageLayout LayoutOf(Tokens tokens, Bytes state_per_token, int layers, int parts);

// Pages that cover a request's tokens are read whole; only those that are whole inside the
// contiguous prefix that matched replace computing.
struct RestartRead {
  int64_t pages_read = 0;  // ceil(read / page)
  int64_t pages_used = 0;  // floor(matched / page), at most those read
  Bytes read;
  Bytes used;

  int64_t PagesWasted() const { return pages_read - pages_used; }
};
RestartRead ReadAfterRestart(const PageLayout& page, Tokens read, Tokens matched);

}  // namespace divisi
