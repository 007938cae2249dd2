#include "divisi/core/thread_pool.h"

#include "divisi/core/check.h"

namespace divisi {
namespace {

// About 50 us of spinning: longer than the gap between two kernels of a step, shorter than anyone
// would notice as load on an idle server.
constexpr int kSpins = 2000;

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
    const int64_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= tasks_) return;
    call_(fn_, task, thread);
  }
}

void ThreadPool::RunErased(int64_t tasks, void* fn, Call call) {
  if (workers_.empty() || tasks <= 1) {
    for (int64_t task = 0; task < tasks; ++task) call(fn, task, 0);
    return;
  }
  fn_ = fn;
  call_ = call;
  tasks_ = tasks;
  next_task_.store(0, std::memory_order_relaxed);
  busy_workers_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  DrainTasks(0);
  for (int spins = 0; busy_workers_.load(std::memory_order_acquire) != 0; ++spins) {
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
    busy_workers_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace divisi
