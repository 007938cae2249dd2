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
  weather.pool_losses = static_cast<int>(random.Chance(0.5) ? random.Between(1, 6) : 0);
  weather.pool_outages = static_cast<int>(random.Chance(0.3) ? random.Between(1, 2) : 0);
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
                                       RoutePolicy::kCacheFirst, RoutePolicy::kExpectedTtft};
  options.policy = kPolicies[random.Between(0, 3)];
  if (random.Chance(0.5)) options.objective = RouteObjective::kTotal;
  if (random.Chance(0.3)) options.quantile = 1 - 0.5 * random.Uniform();
  return options;
}

SchedulerOptions DrawSimScheduler(Random& random, int64_t most_blocks) {
  return {.max_sequences = random.Between(1, 8),
          .max_batched_tokens = random.Between(8, 64),
          .max_model_len = kSimMaxModelLen,
          .max_waiting = random.Between(1, 20),
          .blocks = random.Between(8, most_blocks),
          .share_prefixes = random.Chance(0.8),
          .page_format = "sim"};
}

PrefixLoaderOptions DrawSimTiers(Random& random) {
  PrefixLoaderOptions options{.tiers = {.host_pages = 12, .disk_pages = 30, .pool = true},
                              .page = Bytes(static_cast<int64_t>(SimExecutor::PageBytes())),
                              .most_loading = 8,
                              .follow = random.Chance(0.7),
                              .peers = true};
  // Of several layers the first is enough to begin with where there are many.
  if (random.Chance(0.7)) options.layers = int{1} << random.Between(1, 3);
  options.tiers.disk_writes = random.Chance(0.5) ? DiskWrites::kAll : DiskWrites::kAdmitted;
  options.tiers.budget = {.pages_per_second = 20 * random.Uniform(),
                          .burst_pages = 1 + 30 * random.Uniform()};
  return options;
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
