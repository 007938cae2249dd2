#include "divisi/core/huge_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace divisi {

Result<HugeMemory> HugeMemory::Reserve(Bytes bytes, const char* what) {
  if (bytes.value == 0) return HugeMemory();
  // NORESERVE: a server asks for what it may need; pages that nothing reaches cost nothing.
  void* data = mmap(nullptr, static_cast<size_t>(bytes.value), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return Error{Code::kResourceExhausted, Format("cannot reserve {} bytes for {}: {}", bytes.value,
                                                  what, std::strerror(errno))};
  }
  (void)madvise(data, static_cast<size_t>(bytes.value), MADV_HUGEPAGE);  // A hint.
  return HugeMemory(static_cast<std::byte*>(data), bytes);
}

HugeMemory::HugeMemory(HugeMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, Bytes())) {}

HugeMemory& HugeMemory::operator=(HugeMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

HugeMemory::~HugeMemory() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(size_.value));
}

}  // namespace divisi
