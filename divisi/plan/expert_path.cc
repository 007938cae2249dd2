#include "divisi/plan/expert_path.h"

#include <algorithm>
#include <cmath>

#include "divisi/plan/checks.h"

namespace divisi {
namespace {

constexpr auto kMostRows = static_cast<int64_t>(kMostExpertRows);

StageTime Operation(const ExpertShape& shape, const DeviceRates& device, double rows) {
  return TimeOf(Work{.flops = shape.Compute(rows), .bytes = shape.Weights()}, device);
}

bool GpuIsFaster(const ExpertShape& shape, const ExpertHost& host, int64_t rows) {
  const auto m = static_cast<double>(rows);
  return GpuPath(shape, host, m).Total() < CpuPath(shape, host, m).Total();
}

int64_t WholeRowsBelow(double rows) {
  return static_cast<int64_t>(std::clamp(std::floor(rows), 1.0, kMostExpertRows));
}

}  // namespace

ExpertPathTime CpuPath(const ExpertShape& shape, const ExpertHost& host, double rows) {
  return {.launches = 2.0 * host.launch,
          .transfer = 2 * shape.Rows(rows) / host.link,
          .operation = Operation(shape, host.cpu, rows)};
}

ExpertPathTime GpuPath(const ExpertShape& shape, const ExpertHost& host, double rows) {
  return {.launches = host.launch,
          .transfer = shape.Weights() / host.link,
          .operation = Operation(shape, host.gpu, rows)};
}

double BalanceRows(const ExpertShape& shape, const DeviceRates& device) {
  const Seconds read = shape.Weights() / device.memory;
  return read.value * device.compute.value / shape.Compute(1).value;
}

std::optional<int64_t> CrossoverRows(const ExpertShape& shape, const ExpertHost& host) {
  // Between the row counts at which a side turns from reading to computing both times are linear,
  // so their difference changes sign at most once there, and halving finds it.
  const int64_t cpu = WholeRowsBelow(BalanceRows(shape, host.cpu));
  const int64_t gpu = WholeRowsBelow(BalanceRows(shape, host.gpu));
  int64_t low = 1;
  for (const int64_t high : {std::min(cpu, gpu), std::max(cpu, gpu), kMostRows}) {
    if (high < low) continue;
    if (GpuIsFaster(shape, host, low)) return low;
    if (GpuIsFaster(shape, host, high)) {
      int64_t slower = low;
      int64_t faster = high;
      while (faster - slower > 1) {
        const int64_t middle = slower + (faster - slower) / 2;
        (GpuIsFaster(shape, host, middle) ? faster : slower) = middle;
      }
      return faster;
    }
    low = high + 1;
  }
  return std::nullopt;
}

Result<void> CheckExpertHost(const ExpertShape& shape, const ExpertHost& host, double rows) {
  RETURN_IF_ERROR(CheckShape(shape));
  RETURN_IF_ERROR(RequirePositive({{"computing rate of the CPU", host.cpu.compute.value},
                                   {"memory bandwidth of the CPU", host.cpu.memory.value},
                                   {"computing rate of the GPU", host.gpu.compute.value},
                                   {"memory bandwidth of the GPU", host.gpu.memory.value},
                                   {"bandwidth of the link", host.link.value}}));
  constexpr double kLongestLaunch = 3600;  // An hour: nothing that is planned with waits longer.
  RETURN_IF_ERROR(RequireBetween({"launch seconds", host.launch.value}, 0, kLongestLaunch));
  return RequireBetween({"rows of an expert", rows}, 1, kMostExpertRows);
}

}  // namespace divisi
