#include "divisi/sim/sim_weather.h"

#include "divisi/sim/sim_client.h"

namespace divisi {

SimWeather SimWeather::Draw(Random& random) {
  SimWeather weather;
  if (random.Chance(0.3)) return weather;  // A fine day.
  weather.drop = random.Chance(0.5) ? 0.1 * random.Uniform() : 0;
  weather.repeat = random.Chance(0.5) ? 0.1 * random.Uniform() : 0;
  weather.delay = Seconds(0.05 * random.Uniform() * random.Uniform());
  weather.write_delay = Seconds(0.1 * random.Uniform() * random.Uniform());
  weather.crashes = static_cast<int>(random.Between(0, 3));
  weather.partitions = static_cast<int>(random.Between(0, 3));
  weather.lose_gateway = random.Chance(0.1);
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
  return {.times = SimTimes(),
          .max_waiting = random.Between(2, 40),
          .disaggregate_from = random.Chance(0.3) ? random.Between(0, 40) : 0};
}

SchedulerOptions DrawSimScheduler(Random& random) {
  return {.max_sequences = random.Between(1, 8),
          .max_batched_tokens = random.Between(8, 64),
          .max_model_len = kSimMaxModelLen,
          .max_waiting = random.Between(1, 20),
          .blocks = random.Between(8, 40),
          .share_prefixes = random.Chance(0.8)};
}

}  // namespace divisi
