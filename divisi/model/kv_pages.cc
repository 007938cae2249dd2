#include "divisi/model/kv_pages.h"

#include <limits>
#include <utility>

namespace divisi {

Result<KvPages> KvPages::Create(const KvLayout& layout, int64_t pages) {
  CHECK(layout.layers > 0 && layout.kv_heads > 0 && layout.head_dim > 0 && pages >= 0,
        "{} layers, {} heads of {}, {} pages", layout.layers, layout.kv_heads, layout.head_dim,
        pages);
  CHECK(layout.head_dim % 2 == 0, "head_dim {} is odd", layout.head_dim);
  if (pages > std::numeric_limits<BlockId>::max()) {
    return Error{
        Code::kResourceExhausted,
        Format("{} KV pages are more than the {} that have numbers; ask for less KV memory", pages,
               std::numeric_limits<BlockId>::max())};
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(layout.PageBytes(), pages, &bytes)) {
    return Error{Code::kResourceExhausted,
                 Format("{} KV pages do not fit an address space", pages)};
  }
  Result<HugeMemory> memory = HugeMemory::Reserve(Bytes(bytes), "KV pages");
  if (!memory) {
    return Error{memory.error().code, memory.error().message + "; ask for less KV memory"};
  }
  return KvPages(layout, pages, std::move(*memory));
}

}  // namespace divisi
