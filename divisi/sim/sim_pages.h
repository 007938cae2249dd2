// Pages on their way between simulated workers. A page is read when it lands, as a card that reads
// memory late would; one whose writer has died meanwhile lands as junk, again and again, unless it
// was barred.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <utility>

#include "divisi/core/random.h"
#include "divisi/sim/sim_schedule.h"
#include "divisi/sim/sim_weather.h"
#include "divisi/sim/sim_worker.h"

namespace divisi {

class SimPages {
 public:
  // The process whose life that is; null: it has ended.
  using Find = std::function<SimWorker*(NodeId life)>;

  // All outlive this.
  SimPages(SimSchedule& schedule, Random& random, const SimWeather& weather, Find find)
      : schedule_(schedule), random_(random), weather_(weather), find_(std::move(find)) {}

  void Write(NodeId from, const PageWrite& write);
  // Nothing passes between the two for so long.
  void Part(const SimWorker& a, const SimWorker& b, Seconds length);
  int64_t late_writes() const { return late_writes_; }

 private:
  using Pair = std::pair<const SimWorker*, const SimWorker*>;

  void Land(NodeId from, const PageWrite& write);
  void LandLate(SimWorker& target, NodeId from, const PageWrite& write);

  SimSchedule& schedule_;
  Random& random_;
  const SimWeather& weather_;
  const Find find_;
  std::set<Pair> parted_;
  int64_t late_writes_ = 0;
};

}  // namespace divisi
