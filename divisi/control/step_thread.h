// Runs the executor's steps on a thread of its own, one at a time, so that who plans them goes on
// taking messages meanwhile: a decode worker reserves pages for the next prompt, and a prefill
// worker hands over a written one, while a step of seconds runs.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "divisi/engine/executor.h"

namespace divisi {

class StepThread {
 public:
  // wake: called from the thread when a step has ended. The executor outlives this.
  StepThread(Executor& executor, std::function<void()> wake);
  // Waits for the step under way.
  ~StepThread();
  StepThread(const StepThread&) = delete;
  StepThread& operator=(const StepThread&) = delete;

  // The plan is read until the step has ended. Requires: !busy().
  void Begin(const StepPlan& plan);
  // From Begin until the results are taken.
  bool busy() const { return busy_; }
  // Once for each step, when it has ended.
  std::optional<std::vector<SliceResult>> TakeResults();
  // Waits for the step under way and forgets its results.
  void Drop();

 private:
  void Loop();

  Executor& executor_;
  const std::function<void()> wake_;
  bool busy_ = false;  // The caller's own.

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  const StepPlan* plan_ = nullptr;
  std::optional<std::vector<SliceResult>> results_;
  bool stopping_ = false;

  std::thread thread_;  // Last: it uses the rest.
};

}  // namespace divisi
