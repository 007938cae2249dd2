// Wakes a thread that waits for sockets.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace divisi {

class EventSocketBell {
 public:
  EventSocketBell() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~EventSocketBell() { close(fd_); }
  EventSocketBell(const EventSocketBell&) = delete;
  EventSocketBell& operator=(const EventSocketBell&) = delete;

  // From any thread. Rings that were not heard yet are one.
  void Ring() const { [[maybe_unused]] const auto sent = eventfd_write(fd_, 1); }
  void Hear() const {
    eventfd_t count = 0;
    [[maybe_unused]] const auto heard = eventfd_read(fd_, &count);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace divisi
