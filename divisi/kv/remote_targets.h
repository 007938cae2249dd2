// Whom a remote store's calls go to, the pool's nodes or other workers, and what was late, away or
// full there lately: that one is left alone for a while, longer each time, and others are not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "divisi/core/units.h"

namespace divisi {

class RemoteTargets {
 public:
  // Pauses grow from first to most. Those whose pauses are over are forgotten beyond kMost.
  RemoteTargets(Seconds first, Seconds most) : first_(first), most_(most) {}
  static constexpr size_t kMost = 256;  // As many as a StorePool knows peers

  // Numbers are those of RemotePages::TargetOf.
  bool GetsPause(uint64_t target, Seconds now) const;
  bool PutsPause(uint64_t target, Seconds now) const;
  // Whether its last puts failed: one at a time tells whether it takes them again.
  bool PutsFail(uint64_t target) const;
  size_t PutsOpen(uint64_t target) const;

  void GetLate(uint64_t target, Seconds now) { Failed(Of(target, now).gets, now); }
  void GetEnded(uint64_t target);
  void PutBegun(uint64_t target, Seconds now) { ++Of(target, now).puts_open; }
  void PutReleased(uint64_t target);
  void PutFailed(uint64_t target, Seconds now) { Failed(Of(target, now).puts, now); }
  void PutEnded(uint64_t target);

 private:
  struct Pause {
    Seconds length, until;
  };
  struct Target {
    Pause gets, puts;
    size_t puts_open = 0;
  };
  const Target* Find(uint64_t target) const;
  Target& Of(uint64_t target, Seconds now);
  void Failed(Pause& pause, Seconds now) const;

  const Seconds first_, most_;
  std::map<uint64_t, Target> targets_;
};

}  // namespace divisi
