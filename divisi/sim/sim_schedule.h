// Virtual time: events in the order of their times, and of their coming where those are equal.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "divisi/core/units.h"

namespace divisi {

class SimSchedule {
 public:
  Seconds now() const { return now_; }
  // Of events so far: what is equal in two runs that are the same.
  uint64_t events() const { return last_; }

  void At(Seconds time, std::function<void()> event) {
    events_.emplace(std::pair{std::max(time, now_).value, ++last_}, std::move(event));
  }
  void In(Seconds wait, std::function<void()> event) { At(now_ + wait, std::move(event)); }

  // Runs the next event; false: there is none.
  bool Step() {
    if (events_.empty()) return false;
    const auto first = events_.begin();
    now_ = Seconds(first->first.first);
    const std::function<void()> event = std::move(first->second);
    events_.erase(first);
    event();
    return true;
  }

 private:
  Seconds now_;
  uint64_t last_ = 0;
  std::map<std::pair<double, uint64_t>, std::function<void()>> events_;
};

}  // namespace divisi
