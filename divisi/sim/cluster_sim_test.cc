// The hand-off under faults, by seed (sim_cluster.h). A failure prints the seed;
// DIVISI_SEED=<seed> in the environment runs that one alone, DIVISI_SEEDS=<n> as many as asked.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "divisi/sim/sim_cluster.h"

namespace divisi {
namespace {

volatile uint64_t running_seed = 0;

void PrintSeedOnAbort(int) {
  std::fprintf(stderr, "rerun: DIVISI_SEED=%llu cluster_sim_test\n",
               static_cast<unsigned long long>(running_seed));
  std::signal(SIGABRT, SIG_DFL);
  std::raise(SIGABRT);
}

struct Count {
  const char* name;
  int64_t SimClusterReport::*field;
};
// Each must have happened somewhere, or the soak does not test it.
constexpr Count kCounts[] = {
    {"finished", &SimClusterReport::finished},
    {"failed", &SimClusterReport::failed},
    {"failed mid-stream", &SimClusterReport::failed_mid_stream},
    {"refused", &SimClusterReport::refused},
    {"cancelled", &SimClusterReport::cancelled},
    {"hand-overs", &SimClusterReport::handovers},
    {"retries", &SimClusterReport::retries},
    {"crashes", &SimClusterReport::crashes},
    {"partitions", &SimClusterReport::partitions},
    {"false alarms", &SimClusterReport::false_alarms},
    {"leaves", &SimClusterReport::leaves},
    {"dropped", &SimClusterReport::dropped},
    {"repeated", &SimClusterReport::repeated},
    {"expired leases", &SimClusterReport::expired_leases},
    {"late writes", &SimClusterReport::late_writes},
    {"gateways lost", &SimClusterReport::gateway_lost},
    {"directory outages", &SimClusterReport::directory_outages},
    {"declared dead", &SimClusterReport::declared_dead},
    {"drains", &SimClusterReport::drains},
    {"role changes", &SimClusterReport::role_changes},
    {"loads", &SimClusterReport::loads},
    {"failed loads", &SimClusterReport::failed_loads},
    {"pages of the pool", &SimClusterReport::pool_pages},
    {"pages of peers", &SimClusterReport::peer_pages},
    {"steps behind a load", &SimClusterReport::following_steps},
    {"prefixes lost behind a load", &SimClusterReport::lost_prefixes},
    {"pages that the pool gave up", &SimClusterReport::pool_losses},
    {"outages of the pool", &SimClusterReport::pool_outages},
    {"gaps in events", &SimClusterReport::event_gaps},
    {"replays of events", &SimClusterReport::event_replays},
    {"snapshots of events", &SimClusterReport::event_snapshots},
    {"losses of events", &SimClusterReport::event_losses},
    {"pages that gateways know", &SimClusterReport::known_pages},
};

bool RunSeed(uint64_t seed, SimClusterReport& sum) {
  running_seed = seed;
  const SimClusterReport report = RunSimCluster(seed);
  for (const Count& count : kCounts) sum.*count.field += report.*count.field;
  EXPECT_EQ(report.fault, "") << "rerun: DIVISI_SEED=" << seed << " cluster_sim_test";
  if (report.fault.empty() && seed % 20 == 0) {
    EXPECT_EQ(RunSimCluster(seed).digest, report.digest) << "seed " << seed << " runs differently";
  }
  return report.fault.empty();
}

TEST(ClusterSimTest, KeepsItsPromisesUnderFaults) {
  std::signal(SIGABRT, PrintSeedOnAbort);
  SimClusterReport sum;
  if (const char* seed = std::getenv("DIVISI_SEED")) {
    RunSeed(std::strtoull(seed, nullptr, 10), sum);
    return;
  }
  const char* asked = std::getenv("DIVISI_SEEDS");
  const uint64_t count = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 2000;
  const uint64_t fresh = std::random_device()() * uint64_t{1000003};
  std::printf("fixed seeds 1 to %llu, fresh seeds from %llu\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(fresh));
  int failures = 0;
  for (uint64_t i = 1; i <= count && failures < 3; ++i) failures += !RunSeed(i, sum);
  for (uint64_t i = 0; i < count / 10 && failures < 3; ++i) failures += !RunSeed(fresh + i, sum);
  for (const Count& each : kCounts) {
    std::printf("%s %lld\n", each.name, static_cast<long long>(sum.*each.field));
    EXPECT_GT(sum.*each.field, 0) << each.name;
  }
}

}  // namespace
}  // namespace divisi
