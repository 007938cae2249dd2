#include "divisi/control/worker_rates.h"

#include <algorithm>
#include <cmath>

#include "divisi/core/check.h"

namespace divisi {
namespace {

// A step of a kind halves what the ones about 70 before it count.
constexpr double kKeptStep = 0.99;
constexpr double kKeptWrite = 0.995;
// How much the assumptions weigh against as many steps, each term at what an ordinary step has of
// it: a step, a hundred prompt tokens, their pairs, four decodes.
constexpr double kAssumedWeight = 1e-3;
constexpr std::array<double, 4> kOrdinary = {1, 100, 5000, 4};
// A write that ends in the same moment of a coarse clock.
constexpr Seconds kLeastTime{1e-9};

}  // namespace

Seconds WorkerRates::PromptWork(TokenRange tokens) const {
  const auto pairs = [](double n) { return n * (n + 1) / 2; };
  const auto from = static_cast<double>(tokens.from), to = static_cast<double>(tokens.to);
  return per_token * (to - from) + per_pair * (pairs(to) - pairs(from));
}

Seconds WorkerRates::Prefill(TokenRange tokens, int64_t chunk, int64_t decoding) const {
  const int64_t count = tokens.to - tokens.from;
  const int64_t steps = (count + chunk - 1) / std::max<int64_t>(chunk, 1);
  return PromptWork(tokens) + DecodeStep(decoding) * steps;
}

Seconds WorkerRates::DecodeStep(int64_t decoding) const { return step + per_sequence * decoding; }

bool WorkerRates::Sane() const {
  const auto good = [](double value) { return std::isfinite(value) && value >= 0; };
  return good(step.value) && good(per_token.value) && good(per_pair.value) &&
         good(per_sequence.value) && good(write.value) && write.value > 0 && good(lookup.value) &&
         std::all_of(read.begin() + 1, read.end(),
                     [&](BytesPerSecond rate) { return good(rate.value) && rate.value > 0; });
}

StepWork WorkOf(const StepPlan& plan) {
  StepWork work;
  for (const StepSlice& slice : plan.slices) {
    if (IsDecode(slice)) {
      work.decodes += 1;
      continue;
    }
    const auto start = static_cast<double>(slice.start);
    const auto count = static_cast<double>(slice.count);
    work.prompt_tokens += count;
    work.pairs += count * start + count * (count + 1) / 2;
  }
  return work;
}

void StepMeter::Add(const StepWork& work, Seconds took) {
  if (took < kLeastTime) return;
  Sums& sums = work.prompt_tokens > 0 ? prompts_ : decodes_;
  const Vector x = {1, work.prompt_tokens, work.pairs, work.decodes};
  const double weight = 1 / (took.value * took.value);
  for (size_t i = 0; i < kTerms; ++i) {
    for (size_t j = 0; j < kTerms; ++j) {
      sums.square[i][j] = sums.square[i][j] * kKeptStep + x[i] * x[j] * weight;
    }
    sums.product[i] = sums.product[i] * kKeptStep + x[i] * took.value * weight;
  }
  sums.weight = sums.weight * kKeptStep + weight;
  ++steps_;
  prompt_steps_ += work.prompt_tokens > 0;
}

// Gauss's elimination, fixed terms left at 0. Absent where the sums are no numbers any more.
std::optional<StepMeter::Vector> StepMeter::Solve(const Sums& sums,
                                                  const std::array<bool, kTerms>& fixed) {
  auto a = sums.square;
  Vector b = sums.product;
  for (size_t i = 0; i < kTerms; ++i) {
    if (!fixed[i]) continue;
    for (size_t j = 0; j < kTerms; ++j) a[i][j] = a[j][i] = 0;
    a[i][i] = 1;
    b[i] = 0;
  }
  for (size_t i = 0; i < kTerms; ++i) {
    if (!(a[i][i] > 0)) return std::nullopt;
    for (size_t row = i + 1; row < kTerms; ++row) {
      const double factor = a[row][i] / a[i][i];
      for (size_t j = i; j < kTerms; ++j) a[row][j] -= factor * a[i][j];
      b[row] -= factor * b[i];
    }
  }
  for (size_t i = kTerms; i-- > 0;) {
    for (size_t j = i + 1; j < kTerms; ++j) b[i] -= a[i][j] * b[j];
    b[i] /= a[i][i];
    if (!std::isfinite(b[i])) return std::nullopt;
  }
  return b;
}

void StepMeter::Fit(WorkerRates& rates) const {
  if (steps_ == 0) return;
  Sums sums = prompts_;
  for (size_t i = 0; i < kTerms; ++i) {
    for (size_t j = 0; j < kTerms; ++j) sums.square[i][j] += decodes_.square[i][j];
    sums.product[i] += decodes_.product[i];
  }
  const WorkerRates assumed;
  const Vector given = {assumed.step.value, assumed.per_token.value, assumed.per_pair.value,
                        assumed.per_sequence.value};
  const double weight = kAssumedWeight * (prompts_.weight + decodes_.weight);
  for (size_t i = 0; i < kTerms; ++i) {
    const double amount = weight * kOrdinary[i] * kOrdinary[i];
    sums.square[i][i] += amount;
    sums.product[i] += amount * given[i];
  }
  // No term takes time away: the most negative one is nothing, and the rest is fitted again.
  std::array<bool, kTerms> fixed{};
  while (true) {
    const auto solved = Solve(sums, fixed);
    if (!solved) return;
    size_t least = 0;
    for (size_t i = 1; i < kTerms; ++i) {
      if ((*solved)[i] * kOrdinary[i] < (*solved)[least] * kOrdinary[least]) least = i;
    }
    if ((*solved)[least] >= 0) {
      rates.step = Seconds((*solved)[0]);
      rates.per_token = Seconds((*solved)[1]);
      rates.per_pair = Seconds((*solved)[2]);
      rates.per_sequence = Seconds((*solved)[3]);
      rates.steps = steps_;
      rates.prompt_steps = prompt_steps_;
      return;
    }
    fixed[least] = true;
  }
}

void WriteMeter::Begin(Seconds now) {
  if (under_way_++ == 0) since_ = now;
}

void WriteMeter::End(Bytes bytes, Seconds now) {
  CHECK(under_way_ > 0, "a write ends that did not begin");
  --under_way_;
  const Seconds took = now - since_;
  since_ = now;
  if (bytes.value == 0) return;
  bytes_ = bytes_ * kKeptWrite + static_cast<double>(bytes.value);
  seconds_ = seconds_ * kKeptWrite + took.value;
  ++writes_;
}

void WriteMeter::Fit(WorkerRates& rates) const {
  if (writes_ == 0 || bytes_ <= 0) return;
  rates.write = BytesPerSecond(bytes_ / std::max(seconds_, kLeastTime.value));
  rates.writes = writes_;
}

}  // namespace divisi
