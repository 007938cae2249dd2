// A fixed set of threads that run numbered tasks together: fork, work, join.
//
// Which thread runs a task is not defined, so a task's result must depend on its number alone; that
// is how the thread count never changes a token. Workers spin for a short while between runs,
// because a decode step joins hundreds of times and a sleep costs more than most of its tasks.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace divisi {

class ThreadPool {
 public:
  // threads: how many run tasks, the caller of Run among them; at least 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(task, thread) once for each task in [0, tasks), fewer than 2^31, with thread in [0,
  // threads()) naming scratch space that no other running task uses. Returns when all are done. One
  // Run at a time, and none from within fn.
  template <typename Fn>
  void Run(int64_t tasks, Fn&& fn) {
    using Function = std::remove_reference_t<Fn>;
    RunErased(
        tasks, const_cast<void*>(static_cast<const void*>(&fn)),
        [](void* f, int64_t task, int thread) { (*static_cast<Function*>(f))(task, thread); });
  }

 private:
  using Call = void (*)(void*, int64_t task, int thread);
  void RunErased(int64_t tasks, void* fn, Call call);
  void Work(int thread);
  void DrainTasks(int thread);

  std::vector<std::thread> workers_;

  // The current job: written by Run before `ticket_` is set, read by whoever claims a task of it,
  // and not written again before all of its tasks are done.
  void* fn_ = nullptr;
  Call call_ = nullptr;

  // Tasks of the job in the upper half, the next one to claim in the lower: one addition claims a
  // task and tells whether there is one. A worker that wakes late finds none, or one of a later
  // job, and either is right: nobody waits for workers, only for claimed tasks.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<int64_t> done_{0};         // Tasks of the job that have ended.
  alignas(64) std::atomic<uint32_t> generation_{0};  // Raised with each job, to wake workers.
  std::atomic<bool> stopping_{false};
};

}  // namespace divisi
