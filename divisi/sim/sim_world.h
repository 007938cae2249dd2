// What the processes of a simulated cluster share.
#pragma once

#include "divisi/core/random.h"
#include "divisi/sim/sim_schedule.h"
#include "divisi/sim/sim_weather.h"

namespace divisi {

class SimDirectory;
class SimEvents;
class SimLinks;
class SimPages;
struct SimPool;

struct SimWorld {
  SimSchedule& schedule;
  Random& random;
  const SimWeather& weather;
  SimLinks& links;
  SimPages& pages;
  SimDirectory* directory = nullptr;  // Null: there is none.
  SimPool* pool = nullptr;            // Null: workers have no tiers below the device.
  SimEvents* events = nullptr;        // Null: workers do not publish what they hold.
};

}  // namespace divisi
