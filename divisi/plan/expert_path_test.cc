#include "divisi/plan/expert_path.h"

#include <gtest/gtest.h>

#include <cmath>

#include "divisi/core/random.h"

namespace divisi {
namespace {

constexpr ExpertShape kExpert{.hidden = 4096, .width = 1536};

// Example 9.3: a Xeon 8452Y with its AVX-512 or AMX kernel, half an A100 40GB PCIe, PCIe 4.0.
ExpertHost ExampleHost(double cpu_tflops = 1.8, double cpu_gbytes = 220) {
  return {.cpu = {FlopsPerSecond(cpu_tflops * 1e12), BytesPerSecond(cpu_gbytes * 1e9)},
          .gpu = {FlopsPerSecond(156e12), BytesPerSecond(777.5e9)},
          .link = BytesPerSecond(25e9),
          .launch = Seconds(5e-6)};
}

TEST(ExpertPathTest, OneRowIsFasterOnTheCpu) {
  EXPECT_EQ(kExpert.Weights().value, 36 << 20);
  EXPECT_NEAR(8 * CpuPath(kExpert, ExampleHost(), 1).Total().value, 1.4579241890909092e-3, 1e-15);
  EXPECT_NEAR(8 * GpuPath(kExpert, ExampleHost(), 1).Total().value, 12.508006951511254e-3, 1e-15);
}

TEST(ExpertPathTest, CrossoverIsTheFirstWholeRow) {
  EXPECT_EQ(CrossoverRows(kExpert, ExampleHost()), 72);
  EXPECT_EQ(CrossoverRows(kExpert, ExampleHost(21.3)), 689);
}

TEST(ExpertPathTest, CrossoverMayBeTheFirstRowOrNone) {
  ExpertHost host = ExampleHost();
  host.link = BytesPerSecond(1e15);
  host.cpu.memory = BytesPerSecond(1e9);
  EXPECT_EQ(CrossoverRows(kExpert, host), 1);
  host = ExampleHost(200, 1000);  // A CPU that computes faster than the GPU, next to its weights.
  host.gpu.compute = FlopsPerSecond(1e12);
  EXPECT_EQ(CrossoverRows(kExpert, host), std::nullopt);
}

TEST(ExpertPathTest, CrossoverAgreesWithTryingEachCount) {
  Random random(9);
  for (int round = 0; round < 300; ++round) {
    const auto rate = [&](double low, double high) {
      return std::exp(std::log(low) + random.Uniform() * std::log(high / low));
    };
    const ExpertHost host{
        .cpu = {FlopsPerSecond(rate(1e11, 1e14)), BytesPerSecond(rate(1e10, 1e12))},
        .gpu = {FlopsPerSecond(rate(1e11, 1e15)), BytesPerSecond(rate(1e10, 4e12))},
        .link = BytesPerSecond(rate(1e9, 1e12)),
        .launch = Seconds(rate(1e-7, 1e-4))};
    std::optional<int64_t> first;
    constexpr int64_t kTried = 3000;
    for (int64_t m = 1; m <= kTried && !first; ++m) {
      const auto rows = static_cast<double>(m);
      if (GpuPath(kExpert, host, rows).Total() < CpuPath(kExpert, host, rows).Total()) first = m;
    }
    const auto found = CrossoverRows(kExpert, host);
    if (first) {
      EXPECT_EQ(found, first) << "round " << round;
    } else {
      EXPECT_TRUE(!found || *found > kTried) << "round " << round;
    }
  }
}

// Exercise 9-3: the balance is the ratio of the rates for two bytes a weight, half of it for one.
TEST(ExpertPathTest, BalanceFollowsRatesAndBytes) {
  EXPECT_NEAR(BalanceRows(kExpert, ExampleHost().cpu), 1.8e12 / 220e9, 1e-12);
  EXPECT_NEAR(BalanceRows(kExpert, ExampleHost(21.3, 125).cpu), 21.3e12 / 125e9, 1e-12);
  ExpertShape narrow = kExpert;
  narrow.weight_bytes = 1;
  EXPECT_NEAR(BalanceRows(narrow, ExampleHost().cpu), 0.9e12 / 220e9, 1e-12);
}

// Figure 9-15: with AVX-512 the socket does not matter, with AMX it decides.
TEST(ExpertPathTest, RemoteMemoryMattersOnlyWhereReadingIsTheLimit) {
  const auto total = [](double tflops, double gbytes) {
    return CpuPath(kExpert, ExampleHost(tflops, gbytes), 128).Total();
  };
  EXPECT_EQ(total(1.8, 220), total(1.8, 125));
  EXPECT_LT(total(21.3, 220), total(21.3, 125));
}

TEST(ExpertPathTest, RefusesWhatCannotBeDivided) {
  EXPECT_TRUE(CheckExpertHost(kExpert, ExampleHost(), 1));
  EXPECT_FALSE(CheckExpertHost(kExpert, ExampleHost(0), 1));
  EXPECT_FALSE(CheckExpertHost(kExpert, ExampleHost(1.8, 0), 1));
  EXPECT_FALSE(CheckExpertHost(kExpert, ExampleHost(), 0));
  EXPECT_FALSE(CheckExpertHost(kExpert, ExampleHost(), 1e30));
  EXPECT_FALSE(CheckExpertHost({.hidden = 0, .width = 1536}, ExampleHost(), 1));
}

}  // namespace
}  // namespace divisi
