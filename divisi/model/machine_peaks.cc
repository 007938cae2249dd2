#include "divisi/model/machine_peaks.h"

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
  ASSIGN_OR_RETURN(HugeMemory memory, HugeMemory::Reserve(Bytes(bytes), "measuring bandwidth"));
  std::memset(memory.data(), 1, static_cast<size_t>(bytes));
  return ReadBuffer(std::move(memory));
}

double ReadBuffer::MeasureBandwidth(Isa isa, ThreadPool& pool, const Clock& clock,
                                    Seconds least) const {
  const Kernels& kernels = KernelsOf(isa);
  const int64_t tasks = memory_.size().value / kReadTaskBytes;
  int64_t passes = 0;
  const Seconds start = clock.Now();
  Seconds elapsed;
  do {
    pool.Run(tasks, [&](int64_t task, int) {
      CHECK(kernels.read_peak(memory_.data() + task * kReadTaskBytes, kReadTaskBytes) > 0,
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
