#include "divisi/model/kv_pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

namespace divisi {

Result<KvPages> KvPages::Create(const KvLayout& layout, int64_t pages) {
  CHECK(layout.layers > 0 && layout.kv_heads > 0 && layout.head_dim > 0 && pages >= 0,
        "{} layers, {} heads of {}, {} pages", layout.layers, layout.kv_heads, layout.head_dim,
        pages);
  CHECK(layout.head_dim % 2 == 0, "head_dim {} is odd", layout.head_dim);
  if (pages == 0) return KvPages(layout, 0, nullptr);
  if (pages > std::numeric_limits<BlockId>::max()) {
    return Error{
        Code::kResourceExhausted,
        Format("{} KV pages are more than the {} that have numbers; ask for less KV memory", pages,
               std::numeric_limits<BlockId>::max())};
  }
  size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<size_t>(layout.PageBytes()), static_cast<size_t>(pages),
                             &bytes)) {
    return Error{Code::kResourceExhausted,
                 Format("{} KV pages do not fit an address space", pages)};
  }
  // NORESERVE: a server asks for what it may need; pages that no sequence reaches cost nothing.
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return Error{Code::kResourceExhausted,
                 Format("cannot reserve {} bytes for {} KV pages: {}; ask for less KV memory",
                        bytes, pages, std::strerror(errno))};
  }
  // A hint: attention streams pages, and 4 KiB translations would miss on each.
  (void)madvise(data, bytes, MADV_HUGEPAGE);
  return KvPages(layout, pages, static_cast<std::byte*>(data));
}

KvPages::KvPages(KvPages&& other) noexcept
    : layout_(other.layout_),
      pages_(std::exchange(other.pages_, 0)),
      data_(std::exchange(other.data_, nullptr)) {}

KvPages& KvPages::operator=(KvPages&& other) noexcept {
  std::swap(layout_, other.layout_);
  std::swap(pages_, other.pages_);
  std::swap(data_, other.data_);
  return *this;
}

KvPages::~KvPages() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(pages_ * layout_.PageBytes()));
}

}  // namespace divisi
