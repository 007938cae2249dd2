#include "divisi/core/thread_pool.h"

#include "divisi/core/check.h"

namespace divisi {
namespace {

// About 50 us of spinning: longer than the gap between two kernels of a step, shorter than anyone
// would notice as load on an idle server.
constexpr int kSpins = 2000;

// ticket_'s lower half. Claims beyond the last task are at most one per thread and wake-up, far
// from carrying into the upper half.
constexpr int kTaskBits = 32;
constexpr uint64_t kTaskMask = (uint64_t{1} << kTaskBits) - 1;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  CHECK(threads >= 1, "threads {}", threads);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { Work(i); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::DrainTasks(int thread) {
  while (true) {
    const uint64_t claim = ticket_.fetch_add(1, std::memory_order_acq_rel);
    const uint64_t task = claim & kTaskMask;
    if (task >= claim >> kTaskBits) return;
    call_(fn_, static_cast<int64_t>(task), thread);
    done_.fetch_add(1, std::memory_order_release);
  }
}

void ThreadPool::RunErased(int64_t tasks, void* fn, Call call) {
  if (workers_.empty() || tasks <= 1) {
    for (int64_t task = 0; task < tasks; ++task) call(fn, task, 0);
    return;
  }
  CHECK(tasks < int64_t{1} << 31, "{} tasks", tasks);
  fn_ = fn;
  call_ = call;
  done_.store(0, std::memory_order_relaxed);
  ticket_.store(static_cast<uint64_t>(tasks) << kTaskBits, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  DrainTasks(0);
  for (int spins = 0; done_.load(std::memory_order_acquire) != tasks; ++spins) {
    if (spins < kSpins) {
      Pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::Work(int thread) {
  uint32_t seen = 0;
  while (true) {
    uint32_t current = generation_.load(std::memory_order_acquire);
    for (int spins = 0; current == seen && spins < kSpins; ++spins) {
      Pause();
      current = generation_.load(std::memory_order_acquire);
    }
    while (current == seen) {
      generation_.wait(seen, std::memory_order_acquire);
      current = generation_.load(std::memory_order_acquire);
    }
    seen = current;
    if (stopping_.load()) return;
    DrainTasks(thread);
  }
}

}  // namespace divisi
