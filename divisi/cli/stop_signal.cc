#include "divisi/cli/stop_signal.h"

#include <unistd.h>

#include <thread>

namespace divisi {

StopSignal::StopSignal() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  std::thread([this] { Watch(); }).detach();
}

void StopSignal::Watch() {
  int signal = 0;
  sigwait(&signals_, &signal);
  // What the shell would say of a process that the signal killed.
  if (!serving_) _exit(128 + signal);
  asked_ = true;
  asked_.notify_all();
  sigwait(&signals_, &signal);
  _exit(128 + signal);
}

const std::atomic<bool>& StopSignal::Serve() {
  serving_ = true;
  return asked_;
}

}  // namespace divisi
