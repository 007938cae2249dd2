// Anonymous memory that the system is asked to back with huge pages: what is streamed through, such
// as weights and KV, misses the translation cache on every 4 KiB page, on some machines at a third
// of the bandwidth (bench/RESULTS.md).
#pragma once

#include <cstddef>

#include "divisi/core/result.h"
#include "divisi/core/units.h"

namespace divisi {

class HugeMemory {
 public:
  HugeMemory() = default;  // Empty.
  // Reserves address space, zeroed; memory is taken as it is first written.
  // Errors: kResourceExhausted, naming `what`, when the system refuses.
  static Result<HugeMemory> Reserve(Bytes bytes, const char* what);
  HugeMemory(HugeMemory&& other) noexcept;
  HugeMemory& operator=(HugeMemory&& other) noexcept;
  ~HugeMemory();

  std::byte* data() const { return data_; }
  Bytes size() const { return size_; }

 private:
  HugeMemory(std::byte* data, Bytes size) : data_(data), size_(size) {}
  std::byte* data_ = nullptr;
  Bytes size_;
};

}  // namespace divisi
