// A thread for work that would hold up the streams of an I/O thread: large bodies to parse and
// tokenise. First come, first served, over a bounded queue.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace divisi {

class GatewayWorker {
 public:
  // As many of the largest bodies as the HTTP server takes together.
  static constexpr size_t kMaxQueued = 32;

  GatewayWorker();
  ~GatewayWorker();  // Finishes the task it is at; drops the rest.

  // False when the queue is full. From any thread.
  bool TryPost(std::function<void()> task);

 private:
  void Work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;  // Guarded by mutex_.
  bool stopping_ = false;                    // Guarded by mutex_.
  std::thread thread_;                       // Last: it uses the rest.
};

}  // namespace divisi
