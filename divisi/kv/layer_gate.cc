#include "divisi/kv/layer_gate.h"

#include <algorithm>
#include <chrono>

#include "divisi/core/clock.h"

namespace divisi {

void LayerGate::Open(int layers) {
  const std::lock_guard lock(mutex_);
  if (failed_ || layers <= opened_) return;
  opened_ = layers;
  changed_.notify_all();
}

void LayerGate::Fail() {
  const std::lock_guard lock(mutex_);
  failed_ = true;
  changed_.notify_all();
}

LayerGate::LayerGate(Seconds most) : until_(SteadyClock().Now() + most) {}

bool LayerGate::Wait(int layer, Seconds most) {
  std::unique_lock lock(mutex_);
  if (layer < opened_) return true;
  const SteadyClock clock;
  const Seconds start = clock.Now();
  // A day at the longest: a chrono duration of kNever would overflow.
  const Seconds left = std::min(most, until_ - start);
  const std::chrono::duration<double> bound(std::clamp(left.value, 0.0, 86400.0));
  ++waiting_.now;
  changed_.wait_for(lock, bound, [&] { return layer < opened_ || failed_; });
  --waiting_.now;
  ++waiting_.waits;
  waiting_.waited += clock.Now() - start;
  const bool open = layer < opened_;
  waiting_.in_vain += !open;
  return open;
}

int LayerGate::opened() const {
  const std::lock_guard lock(mutex_);
  return opened_;
}

bool LayerGate::failed() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

LayerGate::Waiting LayerGate::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_;
}

}  // namespace divisi
