// SIGINT and SIGTERM for a server: before it serves, one ends the process; while it serves, the
// first asks it to stop and the second ends the process.
#pragma once

#include <signal.h>

#include <atomic>

namespace divisi {

class StopSignal {
 public:
  // Blocks both signals in this thread and those it starts from now on; so before any other thread.
  // One object per process, which lives to its end: the thread that waits is never joined.
  StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // From now on there is something to stop in order, so before anyone is told that it serves.
  // What is returned turns true, and notifies, once a signal asks for it.
  const std::atomic<bool>& Serve();

 private:
  void Watch();

  sigset_t signals_;
  std::atomic<bool> serving_{false};
  std::atomic<bool> asked_{false};
};

}  // namespace divisi
