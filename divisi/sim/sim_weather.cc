#include "divisi/sim/sim_weather.h"

#include "divisi/sim/sim_client.h"
#include "divisi/sim/sim_executor.h"

namespace divisi {

SimWeather SimWeather::Draw(Random& random) {
  SimWeather weather;
  weather.drains = static_cast<int>(random.Chance(0.3) ? random.Between(1, 3) : 0);
  weather.role_changes = static_cast<int>(random.Chance(0.3) ? random.Between(1, 3) : 0);
  weather.leaves = static_cast<int>(random.Chance(0.2) ? random.Between(1, 2) : 0);
  if (random.Chance(0.3)) return weather;  // A fine day.
  weather.drop = random.Chance(0.5) ? 0.1 * random.Uniform() : 0;
  weather.repeat = random.Chance(0.5) ? 0.1 * random.Uniform() : 0;
  weather.delay = Seconds(0.05 * random.Uniform() * random.Uniform());
  weather.write_delay = Seconds(0.1 * random.Uniform() * random.Uniform());
  weather.crashes = static_cast<int>(random.Between(0, 3));
  weather.partitions = static_cast<int>(random.Between(0, 3));
  weather.lost_gateways = static_cast<int>(random.Chance(0.15) ? random.Between(1, 2) : 0);
  weather.directory_outages = static_cast<int>(random.Chance(0.3) ? random.Between(1, 2) : 0);
  weather.unordered = random.Chance(0.3);
  return weather;
}

HandoffTimes SimTimes() {
  return {.lease = Seconds(1),
          .renew = Seconds(0.2),
          .resend = Seconds(0.1),
          .reserve = Seconds(0.5),
          .prefill = Seconds(3),
          .taken = Seconds(1),
          .token = Seconds(2),
          .total = Seconds(10),
          .backoff = Seconds(0.02),
          .most_backoff = Seconds(0.3)};
}

DispatcherOptions DrawSimDispatcher(Random& random) {
  DispatcherOptions options{.times = SimTimes(), .max_waiting = random.Between(2, 40)};
  if (random.Chance(0.3)) options.disaggregate_from.reset();
  if (random.Chance(0.3)) options.disaggregate_from = random.Between(0, 40);
  constexpr RoutePolicy kPolicies[] = {RoutePolicy::kRoundRobin, RoutePolicy::kLeastLoaded,
                                       RoutePolicy::kExpectedTtft};
  options.policy = kPolicies[random.Between(0, 2)];
  return options;
}

SchedulerOptions DrawSimScheduler(Random& random) {
  return {.max_sequences = random.Between(1, 8),
          .max_batched_tokens = random.Between(8, 64),
          .max_model_len = kSimMaxModelLen,
          .max_waiting = random.Between(1, 20),
          .blocks = random.Between(8, 40),
          .share_prefixes = random.Chance(0.8),
          .page_format = "sim"};
}

WorkerCoreOptions SimWorkerOptions(WorkerRole role, const SchedulerOptions& scheduler) {
  return {.role = role,
          .name = RoleName(role),
          .compatibility = {.page_format = scheduler.page_format},
          .scheduler = scheduler,
          .page = Bytes(static_cast<int64_t>(SimExecutor::PageBytes())),
          .times = SimTimes()};
}

}  // namespace divisi
