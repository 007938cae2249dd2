#include "divisi/kv/write_admission.h"

#include <bit>
#include <cmath>

#include "divisi/core/check.h"

namespace divisi {
namespace {

// Pages after which a trait's own share weighs as much as its prior.
constexpr double kPriorPages = 500;
// Before anything is known one page of ten comes back.
constexpr double kFirstJudged = 10;
constexpr double kFirstCameBack = 1;
// Counts are halved at this many, so that what changed is learned.
constexpr double kMostJudged = 1 << 20;
// A full bucket admits chances above a seventh of the average, an empty one above seven times it.
constexpr double kSteepness = 2;
// What a short answer followed, a document or a picture, tends to be asked about again.
constexpr int kShortAnswerBits = 6;  // Below 64 tokens.
constexpr double kShortAnswerPrior = 2;
constexpr double kOpenSessionPrior = 2;
constexpr double kClosedSessionPrior = 0.5;

enum Trait { kUses, kContinues, kAnswer, kReused, kSession };

double PriorOf(int trait, int value) {
  if (trait == kAnswer && value > 0 && value <= kShortAnswerBits) return kShortAnswerPrior;
  if (trait == kSession && value == static_cast<int>(SessionState::kOpen)) return kOpenSessionPrior;
  if (trait == kSession && value == static_cast<int>(SessionState::kClosed)) {
    return kClosedSessionPrior;
  }
  return 1;
}

}  // namespace

WriteBudget BudgetOf(const Endurance& endurance, Bytes page, Seconds burst) {
  CHECK(page > Bytes(0), "pages of {} bytes", page.value);
  const double rate = endurance.AllowedWrites().value / static_cast<double>(page.value);
  return {rate, rate * burst.value};
}

std::array<int, WriteAdmission::kTraits> WriteAdmission::ValuesOf(const PageTraits& traits) {
  const auto bits = [](int64_t number) {
    const int width = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(number, 0)));
    return std::min(width, kValues - 1);
  };
  return {static_cast<int>(std::clamp<int64_t>(traits.uses, 1, 8)), traits.continues ? 1 : 0,
          bits(traits.answer_tokens), bits(traits.reused_pages), static_cast<int>(traits.session)};
}

double WriteAdmission::Base() const {
  return (all_.came_back + kFirstCameBack) / (all_.judged + kFirstJudged);
}

double WriteAdmission::Chance(const PageTraits& traits) const {
  const double base = Base();
  const auto values = ValuesOf(traits);
  double chance = base;
  for (int trait = 0; trait < kTraits; ++trait) {
    const Share& share = shares_[trait][values[trait]];
    const double imagined = kPriorPages * PriorOf(trait, values[trait]) * base;
    chance *= (share.came_back + imagined) / (share.judged + kPriorPages) / base;
  }
  return chance;
}

double WriteAdmission::Threshold() const {
  if (budget_.burst_pages <= 0) return INFINITY;
  return Base() * std::exp(kSteepness * (1 - 2 * level_ / budget_.burst_pages));
}

void WriteAdmission::Count(const PageTraits& traits, double judged, double came_back) {
  if (all_.judged >= kMostJudged) {
    const auto halve = [](Share& share) { share = {share.judged / 2, share.came_back / 2}; };
    halve(all_);
    for (auto& trait : shares_) std::ranges::for_each(trait, halve);
  }
  const auto add = [&](Share& share) {
    share.judged += judged;
    share.came_back += came_back;
  };
  add(all_);
  const auto values = ValuesOf(traits);
  for (int trait = 0; trait < kTraits; ++trait) add(shares_[trait][values[trait]]);
}

void WriteAdmission::Fill(Seconds now) {
  if (now <= filled_) return;
  level_ += (now - filled_).value * budget_.pages_per_second;
  level_ = std::min(level_, budget_.burst_pages);
  filled_ = now;
}

bool WriteAdmission::Admit(const PageTraits& traits, bool awaited, Seconds now) {
  Fill(now);
  const bool worth = awaited || Chance(traits) >= Threshold();
  if (!awaited) Count(traits, 1, 0);
  ++judged_in_all_;
  if (!worth || level_ < 1) return false;
  level_ -= 1;
  ++admitted_;
  return true;
}

void WriteAdmission::CameBack(const PageTraits& traits) { Count(traits, 0, 1); }

}  // namespace divisi
