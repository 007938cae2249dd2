// Whether a copy of a hot expert on another card is worth its copying: memory traffic of the card
// that holds all hot experts, before and after half the rows of the copied ones go elsewhere.
#pragma once

#include <cstdint>
#include <optional>

#include "divisi/core/result.h"
#include "divisi/core/units.h"
#include "divisi/plan/activation_transfer.h"
#include "divisi/plan/expert_shape.h"
#include "divisi/plan/stage.h"

namespace divisi {

// A grouped GEMM works tile by tile; a tile of the output reads its rows and columns anew.
struct GemmTile {
  double rows = 64;
  double columns = 128;
};

// Bytes that an expert with `rows` rows moves: its weights ceil(rows / tile.rows) times, and per
// row the input of gate and up for each tile of columns (ceil(2 f / columns) h), the input of down
// (ceil(h / columns) f), the outputs of gate and up (2 f) and of down (h).
// Source: section 9.4.2, example 9.6; docs/planner.md, "How work is counted".
// Errors: those of CheckShape; kOutOfRange for tiles or rows out of bounds, bytes beyond 2^62.
Result<Bytes> ExpertTraffic(const ExpertShape& shape, const GemmTile& tile, double rows);

// One card holds `hot_experts` experts with `rows` rows each. Of `copies` of them one replica each
// goes to the `receivers` other cards, spread evenly, one after another over the link; the replica
// then takes half of the rows, the larger one if odd.
struct ReplicaPlan {
  ExpertShape shape;
  GemmTile tile;
  DeviceRates card;
  TransferLink link;
  int64_t hot_experts = 0;
  int64_t rows = 0;
  int64_t copies = 0;
  int64_t receivers = 0;
  Bytes room;  // Free on each receiving card.
};

struct ReplicaOutcome {
  Work before, after;                 // Of the card that held all; a batch.
  StageTime before_time, after_time;  // Of the busiest card.
  Seconds saving;                     // A batch.
  Bytes copied;
  Seconds copy_time;
  Bytes needed;  // On the fullest receiving card.
  bool fits = false;

  // The first batch after which more was saved than copying took: floor(T_copy / dt) + 1. None
  // where nothing is saved or the copies do not fit. Source: section 9.4.2, equation of N_min.
  std::optional<double> PayBackBatches() const;
  // batches * dt - T_copy; negative before it has paid back.
  Seconds NetSaving(double batches) const { return saving * batches - copy_time; }
};

// Errors: kInvalidArgument for rates that are not positive; kOutOfRange for counts out of bounds,
// more copies than hot experts, or bytes beyond 2^62.
Result<ReplicaOutcome> WeighReplicas(const ReplicaPlan& plan);

}  // namespace divisi
