// Wakes a thread that sleeps on its transport or its socket: an eventfd that others ring.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "divisi/core/units.h"
#include "divisi/net/transport.h"

namespace divisi {

class WakeBell {
 public:
  WakeBell() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  WakeBell(const WakeBell&) = delete;
  WakeBell& operator=(const WakeBell&) = delete;
  ~WakeBell() { close(fd_); }

  // Safe from any thread.
  void Ring() const {
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = write(fd_, &one, sizeof one);
  }
  // Until it is rung, the transport has work or `most` is over.
  void Sleep(Transport& transport, Seconds most) const {
    if (!transport.Arm()) return;
    most = std::min(most, transport.NextTimer().value_or(most));
    pollfd fds[] = {{transport.fd(), POLLIN, 0}, {fd_, POLLIN, 0}};
    (void)poll(fds, 2, static_cast<int>(std::max(0.0, most.value) * 1000));
    Hush();
  }
  // Readable when it was rung since the last Hush.
  int fd() const { return fd_; }
  void Hush() const {
    uint64_t rung = 0;
    [[maybe_unused]] const auto taken = read(fd_, &rung, sizeof rung);
  }

 private:
  const int fd_;
};

}  // namespace divisi
