// Whether a load's pages may be written: whoever waits for it may give up meanwhile, and then they
// are somebody else's.
#pragma once

#include <atomic>
#include <mutex>

namespace divisi {

class Landing {
 public:
  // Calls fn and is true, unless the load was given up.
  template <typename Fn>
  bool Land(Fn fn) {
    const std::lock_guard lock(mutex_);
    if (given_up_) return false;
    fn();
    return true;
  }
  // From its return on nothing lands.
  void GiveUp() {
    const std::lock_guard lock(mutex_);
    given_up_ = true;
  }
  // Without waiting for what lands.
  bool given_up() const { return given_up_; }

 private:
  std::mutex mutex_;
  std::atomic<bool> given_up_ = false;
};

}  // namespace divisi
