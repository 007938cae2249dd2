// Where an expert whose weights lie in host memory should run: its weights go to the GPU, or its
// rows go to the CPU. The first pays for the link once a batch, the second for CPU arithmetic by
// the row, so many rows favour the GPU.
#pragma once

#include <cstdint>
#include <optional>

#include "divisi/core/result.h"
#include "divisi/core/units.h"
#include "divisi/plan/expert_shape.h"
#include "divisi/plan/stage.h"

namespace divisi {

struct ExpertHost {
  DeviceRates cpu;  // C_C, B_D; memory of the other socket: its bandwidth in place of B_D.
  DeviceRates gpu;  // C_G, B_H
  BytesPerSecond link;
  Seconds launch;  // alpha, of each transfer
};

// The parts of one expert's time; they follow each other.
struct ExpertPathTime {
  Seconds launches;
  Seconds transfer;
  StageTime operation;
  Seconds Total() const { return launches + transfer + operation.Total(); }
};

// One expert with `rows` rows (m), weights and activations already in the formats to compute with:
//   T_C(m) = 2 alpha + 2 m h b / B_L + max(2 m P_e / C_C, W_e / B_D)
//   T_G(m) = alpha + W_e / B_L + max(2 m P_e / C_G, W_e / B_H)
// Several experts in sequence take as many times that. Requires: CheckExpertHost.
// Source: section 9.3.2, both equations.
ExpertPathTime CpuPath(const ExpertShape& shape, const ExpertHost& host, double rows);
ExpertPathTime GpuPath(const ExpertShape& shape, const ExpertHost& host, double rows);

// The fewest whole rows at which the GPU is faster; none where it is not at any count up to
// kMostExpertRows. Exact: found by comparing the two times, not by solving for equality.
std::optional<int64_t> CrossoverRows(const ExpertShape& shape, const ExpertHost& host);

// Rows at which computing takes as long as reading the weights: m = (W_e / B) C / (2 P_e), which is
// C / B for weights of two bytes. Below it reading is the limit. Source: section 9.3.2, figure
// 9-15.
double BalanceRows(const ExpertShape& shape, const DeviceRates& device);

// Errors: kInvalidArgument for a rate that is not above zero; kOutOfRange for a shape or a number
// of rows out of bounds.
Result<void> CheckExpertHost(const ExpertShape& shape, const ExpertHost& host, double rows);

}  // namespace divisi
