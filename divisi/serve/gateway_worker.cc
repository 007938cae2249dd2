#include "divisi/serve/gateway_worker.h"

namespace divisi {

GatewayWorker::GatewayWorker() : thread_([this] { Work(); }) {}

GatewayWorker::~GatewayWorker() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

bool GatewayWorker::TryPost(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    if (tasks_.size() >= kMaxQueued) return false;
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
  return true;
}

void GatewayWorker::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (stopping_) return;
    {
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }  // What the task holds goes while the queue is free for others.
    lock.lock();
  }
}

}  // namespace divisi
