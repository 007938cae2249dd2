// An executor without a model: it takes modelled time, and its tokens are hashes of the page
// contents that the plan made it read.
//
// Each position of a page holds a number chained from the content before it, the token and the
// position. A sampled token hashes all pages of its slice, so a page that is another sequence's,
// stale, or not yet written gives another token than a run of the request alone; what can be told
// at once is reported as a fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "divisi/core/clock.h"
#include "divisi/engine/executor.h"

namespace divisi {

// Seconds of a step = step + per_token * tokens + per_context_token * sum of slices' contexts.
// The defaults are the order of magnitude of a small model on a few cores.
struct SimRates {
  Seconds step{2e-3};
  Seconds per_token{5e-4};
  Seconds per_context_token{1e-6};
};

struct SimExecutorOptions {
  int64_t blocks = 0;
  int64_t vocab = 1000;  // Tokens drawn are in [0, vocab).
  SimRates rates;
  TokenId failing_token = -1;  // A slice that computes this token fails.
  // Of a step, in place of rates; empty: by them.
  std::function<Seconds(const StepPlan&)> time;
  int layers = 1;  // A gate that all of them have passed is open.
  // Pages have contents, and plans are checked. Without, a step costs no time of ours for its
  // context: for long loads. Tokens are then those of no model.
  bool contents = true;
};

class SimExecutor final : public Executor {
 public:
  // clock: advanced by each step's modelled time; may be null. It outlives this.
  explicit SimExecutor(SimExecutorOptions options, ManualClock* clock = nullptr);

  // Waits for nothing: a slice whose gate is not open by now is lost.
  std::vector<SliceResult> Execute(const StepPlan& plan) override;
  // Whether no gate of the plan is to be waited for any longer: each is open, or failed.
  bool GatesAreDecided(const StepPlan& plan) const;

  // What a page holds, as the bytes that stand for it on a modelled link. Requires: a page that is.
  std::vector<std::byte> ReadPage(BlockId block) const;
  void WritePage(BlockId block, std::span<const std::byte> bytes);
  static size_t PageBytes();

  // What was wrong with the plans so far, the first of it; empty: nothing.
  //   - a slice that does not start where its sequence is, or lacks or exceeds pages or tokens
  //   - a page read before it was written, or written by something at another position
  //   - a page written by one slice that another slice of the same step also has
  const std::string& first_fault() const { return first_fault_; }
  Seconds busy() const { return busy_; }  // The sum of the steps' times.

 private:
  struct Slot {
    uint64_t content = 0;
    int64_t position = -1;
  };

  bool IsLost(const StepSlice& slice) const;
  Slot& SlotAt(const StepSlice& slice, int64_t position);
  Seconds TimeOf(const StepPlan& plan) const;
  std::vector<SliceResult> Draw(const StepPlan& plan) const;
  void Check(const StepPlan& plan);
  void CheckShape(const StepSlice& slice);
  void CheckSharing(const StepPlan& plan);
  void Write(const StepSlice& slice);
  uint64_t ReadAll(const StepSlice& slice);
  SliceResult Answer(const StepSlice& slice);
  void Fault(std::string what);

  SimExecutorOptions options_;
  ManualClock* clock_;
  std::vector<Slot> slots_;      // [blocks][kBlockTokens]
  std::vector<int64_t> writer_;  // Per block: the slice that writes it in this step, or -1.
  std::string first_fault_;
  Seconds busy_;
};

}  // namespace divisi
