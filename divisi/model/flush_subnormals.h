// Subnormal inputs and results count as zero while this object lives, on this thread. The bf16 dot
// product instruction always works so; with this, everything else does too.
#pragma once

#include <cstdint>

namespace divisi {

class FlushSubnormals {
 public:
  FlushSubnormals() : saved_(__builtin_ia32_stmxcsr()) {
    constexpr uint32_t kFlushToZero = 1u << 15;
    constexpr uint32_t kDenormalsAreZero = 1u << 6;
    __builtin_ia32_ldmxcsr(saved_ | kFlushToZero | kDenormalsAreZero);
  }
  ~FlushSubnormals() { __builtin_ia32_ldmxcsr(saved_); }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  uint32_t saved_;
};

}  // namespace divisi
