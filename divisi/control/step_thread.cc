#include "divisi/control/step_thread.h"

#include <utility>

#include "divisi/core/check.h"

namespace divisi {

StepThread::StepThread(Executor& executor, std::function<void()> wake)
    : executor_(executor), wake_(std::move(wake)), thread_([this] { Loop(); }) {}

StepThread::~StepThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void StepThread::Begin(const StepPlan& plan) {
  CHECK(!busy_, "two steps at a time");
  busy_ = true;
  const std::lock_guard lock(mutex_);
  plan_ = &plan;
  changed_.notify_all();
}

std::optional<std::vector<SliceResult>> StepThread::TakeResults() {
  const std::lock_guard lock(mutex_);
  if (!results_) return std::nullopt;
  busy_ = false;
  return std::exchange(results_, std::nullopt);
}

void StepThread::Drop() {
  if (!busy_) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return results_.has_value(); });
  results_.reset();
  busy_ = false;
}

void StepThread::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return plan_ != nullptr || stopping_; });
    if (plan_ == nullptr) return;
    const StepPlan& plan = *std::exchange(plan_, nullptr);
    lock.unlock();
    auto results = executor_.Execute(plan);
    lock.lock();
    results_ = std::move(results);
    changed_.notify_all();
    lock.unlock();
    wake_();
    lock.lock();
  }
}

}  // namespace divisi
