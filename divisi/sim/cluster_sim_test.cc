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

void Add(SimClusterReport& sum, const SimClusterReport& one) {
  for (const auto field :
       {&SimClusterReport::finished, &SimClusterReport::failed, &SimClusterReport::refused,
        &SimClusterReport::cancelled, &SimClusterReport::handovers, &SimClusterReport::crashes,
        &SimClusterReport::partitions, &SimClusterReport::false_alarms, &SimClusterReport::dropped,
        &SimClusterReport::repeated, &SimClusterReport::expired_leases,
        &SimClusterReport::late_writes, &SimClusterReport::failed_mid_stream,
        &SimClusterReport::gateway_lost, &SimClusterReport::drains, &SimClusterReport::role_changes,
        &SimClusterReport::retries, &SimClusterReport::unreachable}) {
    sum.*field += one.*field;
  }
}

bool RunSeed(uint64_t seed, SimClusterReport& sum) {
  running_seed = seed;
  const SimClusterReport report = RunSimCluster(seed);
  Add(sum, report);
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
  std::printf(
      "finished %lld, failed %lld (%lld mid-stream), refused %lld, cancelled %lld; hand-overs "
      "%lld, crashes %lld, partitions %lld, false alarms %lld, dropped %lld, repeated %lld, "
      "expired leases %lld, late writes %lld, gateways lost %lld, out of one's reach %lld, drains "
      "%lld, role changes %lld, retries %lld\n",
      (long long)sum.finished, (long long)sum.failed, (long long)sum.failed_mid_stream,
      (long long)sum.refused, (long long)sum.cancelled, (long long)sum.handovers,
      (long long)sum.crashes, (long long)sum.partitions, (long long)sum.false_alarms,
      (long long)sum.dropped, (long long)sum.repeated, (long long)sum.expired_leases,
      (long long)sum.late_writes, (long long)sum.gateway_lost, (long long)sum.unreachable,
      (long long)sum.drains, (long long)sum.role_changes, (long long)sum.retries);
  // What must have happened somewhere, or the soak does not test it.
  EXPECT_GT(sum.handovers, 0);
  EXPECT_GT(sum.failed_mid_stream, 0);
  EXPECT_GT(sum.expired_leases, 0);
  EXPECT_GT(sum.late_writes, 0);
  EXPECT_GT(sum.false_alarms, 0);
  EXPECT_GT(sum.unreachable, 0);
  EXPECT_GT(sum.drains, 0);
  EXPECT_GT(sum.role_changes, 0);
  EXPECT_GT(sum.retries, 0);
}

}  // namespace
}  // namespace divisi
