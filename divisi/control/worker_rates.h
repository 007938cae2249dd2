// What a worker's steps take, fitted online from those that ran, and how fast its pages reach other
// workers. The form is the cost model's (plan/pass_cost.h): a fixed part (weights that every pass
// reads), one for each prompt token (2 * parameters), one for each pair of positions that attention
// joins (the quadratic term), one for each sequence that decodes.
//
//   seconds = step + per_token * prompt tokens + per_pair * pairs + per_sequence * decodes
//
// And how fast pages come from the tiers below its device (kv/tier_io.h measures each read).
//
// The fit is least squares of relative errors, so that a step that the machine held up weighs
// little, with older steps forgotten. What the steps at hand do not tell apart stays near the
// assumption.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "divisi/core/units.h"
#include "divisi/engine/executor.h"
#include "divisi/engine/prefix_loader.h"

namespace divisi {

// Of one prompt: [from, to).
struct TokenRange {
  int64_t from = 0;
  int64_t to = 0;
};

// The values are the assumptions before anything was measured: a model of about a billion
// parameters on a few cores, 10 Gbit/s, and tiers as PrefixLoader assumes them (kAssumedSpeeds).
struct WorkerRates {
  Seconds step{2e-3};
  Seconds per_token{1e-4};
  Seconds per_pair{0};
  Seconds per_sequence{1e-4};
  BytesPerSecond write{1.25e9};  // Of pages, from when they are ready until they are there.
  int64_t steps = 0;             // Measured; 0: assumed. Of prompts, and of `write`, alike.
  int64_t prompt_steps = 0;
  int64_t writes = 0;
  // [t]: of pages in Tier t, from there to the device, whatever lies between; the device's own is
  // not asked for.
  std::array<BytesPerSecond, kSources> read{BytesPerSecond(0), kAssumedSpeeds.host,
                                            kAssumedSpeeds.disk, kAssumedSpeeds.remote,
                                            kAssumedSpeeds.peer};
  std::array<bool, kSources> read_measured{};
  Seconds lookup{1e-3};  // Until the pool has said what it has.
  bool lookup_measured = false;

  // What prompt tokens add to the steps that run them.
  Seconds PromptWork(TokenRange tokens) const;
  Seconds PromptWork(int64_t tokens) const { return PromptWork(TokenRange{0, tokens}); }
  // Of a prompt computed in steps of at most `chunk` tokens, beside `decoding` sequences.
  Seconds Prefill(TokenRange tokens, int64_t chunk, int64_t decoding) const;
  Seconds Prefill(int64_t tokens, int64_t chunk, int64_t decoding) const {
    return Prefill(TokenRange{0, tokens}, chunk, decoding);
  }
  Seconds DecodeStep(int64_t decoding) const;
  // Whether they can be: no term below 0 or without end. For what another process said.
  bool Sane() const;
};

// Of one step's plan.
struct StepWork {
  double prompt_tokens = 0;
  double pairs = 0;  // Of a prompt token and a position at or before it.
  double decodes = 0;
};
StepWork WorkOf(const StepPlan& plan);

class StepMeter {
 public:
  void Add(const StepWork& work, Seconds took);
  // Fills in what was measured.
  void Fit(WorkerRates& rates) const;

 private:
  static constexpr int kTerms = 4;
  using Vector = std::array<double, kTerms>;
  // Normal equations, each observation divided by its time: sums of x x', of x y, and of weights.
  struct Sums {
    std::array<Vector, kTerms> square{};
    Vector product{};
    double weight = 0;
  };
  static std::optional<Vector> Solve(const Sums& sums, const std::array<bool, kTerms>& fixed);

  // Apart, each forgetting at its own pace: a minute of decodes does not make it forget prompts.
  Sums prompts_, decodes_;
  int64_t steps_ = 0;
  int64_t prompt_steps_ = 0;
};

// Page bytes over the time in which any was on its way.
class WriteMeter {
 public:
  void Begin(Seconds now);
  // bytes: that arrived; of a write that failed 0, and its time is not counted.
  void End(Bytes bytes, Seconds now);
  void Fit(WorkerRates& rates) const;

 private:
  int64_t under_way_ = 0;
  Seconds since_;  // The last Begin from none, or End.
  double bytes_ = 0, seconds_ = 0;
  int64_t writes_ = 0;
};

}  // namespace divisi
