#include "divisi/model/machine_peaks.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "divisi/model/ops_kernels.h"
#include "divisi/model/ops_parallel.h"

namespace divisi {
namespace {

constexpr int64_t kReadTaskBytes = int64_t{2} << 20;

}  // namespace

Result<ReadBuffer> ReadBuffer::Create(int64_t bytes) {
  CHECK(bytes >= kReadTaskBytes, "{} bytes", bytes);
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return Error{Code::kResourceExhausted, Format("cannot map {} bytes to measure memory with: {}",
                                                  bytes, std::strerror(errno))};
  }
  (void)madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  std::memset(data, 1, static_cast<size_t>(bytes));
  return ReadBuffer(static_cast<std::byte*>(data), bytes);
}

ReadBuffer::ReadBuffer(ReadBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

ReadBuffer& ReadBuffer::operator=(ReadBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

ReadBuffer::~ReadBuffer() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
}

double ReadBuffer::MeasureBandwidth(Isa isa, ThreadPool& pool, const Clock& clock,
                                    Seconds least) const {
  const Kernels& kernels = KernelsOf(isa);
  const int64_t tasks = bytes_ / kReadTaskBytes;
  int64_t passes = 0;
  const Seconds start = clock.Now();
  Seconds elapsed;
  do {
    pool.Run(tasks, [&](int64_t task, int) {
      CHECK(kernels.read_peak(data_ + task * kReadTaskBytes, kReadTaskBytes) > 0,
            "nothing was read");
    });
    ++passes;
    elapsed = clock.Now() - start;
  } while (elapsed < least);
  return static_cast<double>(passes * tasks * kReadTaskBytes) / elapsed.value;
}

double MeasureMatrixPeak(Isa isa, ThreadPool& pool, const Clock& clock, Seconds least) {
  // 16 lanes of 2 products and 2 additions each.
  constexpr double kFlopsPerDot = 64;
  constexpr int64_t kRounds = 10000;
  const Kernels& kernels = KernelsOf(isa);
  int64_t rounds = 0;
  const Seconds start = clock.Now();
  Seconds elapsed;
  while (elapsed < least) {
    RunFlushed(pool, 4 * pool.threads(), [&](int64_t, int) {
      CHECK(kernels.dot_peak(kRounds) > 0, "no product was computed");
    });
    rounds += 4 * pool.threads() * kRounds;
    elapsed = clock.Now() - start;
  }
  return kFlopsPerDot * kPeakChains * static_cast<double>(rounds) / elapsed.value;
}

}  // namespace divisi
