#include "divisi/plan/expert_load.h"

#include <algorithm>
#include <cmath>

#include "divisi/core/format.h"
#include "divisi/core/random.h"
#include "divisi/plan/checks.h"

namespace divisi {
namespace {

constexpr double kMostRandomWork = 1e8;

Result<void> CheckDivides(int64_t ep, int64_t experts) {
  if (ep >= 1 && experts % ep == 0) return {};
  return Error{Code::kInvalidArgument,
               Format("EP {} does not divide {} experts; take a size that does, so that every card "
                      "holds as many",
                      ep, experts)};
}

// Draws the batches one by one and keeps the rows of each expert.
class Router {
 public:
  Router(const RoutedBatch& batch, uint64_t seed)
      : batch_(batch),
        random_(seed),
        rows_(static_cast<size_t>(batch.experts)),
        chosen_in_(rows_.size(), 0) {}

  const std::vector<int64_t>& NextBatch() {
    std::fill(rows_.begin(), rows_.end(), 0);
    for (int64_t token = 0; token < batch_.tokens; ++token) ChooseExperts();
    return rows_;
  }

 private:
  // Distinct experts in as many draws as there are to choose, whatever their share.
  // Source: Floyd's sampling, Bentley, CACM 30(9), 1987.
  void ChooseExperts() {
    ++turn_;
    for (int64_t last = batch_.experts - batch_.experts_per_token; last < batch_.experts; ++last) {
      const auto drawn = static_cast<size_t>(random_.Between(0, last));
      const size_t expert = chosen_in_[drawn] == turn_ ? static_cast<size_t>(last) : drawn;
      chosen_in_[expert] = turn_;
      ++rows_[expert];
    }
  }

  RoutedBatch batch_;
  Random random_;
  std::vector<int64_t> rows_;
  std::vector<int64_t> chosen_in_;  // The turn in which the expert was last chosen.
  int64_t turn_ = 0;
};

int64_t BusiestRows(const std::vector<int64_t>& rows, int64_t ep) {
  const size_t each = rows.size() / static_cast<size_t>(ep);
  int64_t busiest = 0;
  for (size_t first = 0; first < rows.size(); first += each) {
    int64_t sum = 0;
    for (size_t i = first; i < first + each; ++i) sum += rows[i];
    busiest = std::max(busiest, sum);
  }
  return busiest;
}

}  // namespace

Result<CardRows> HotCardRows(const RoutedBatch& batch, double hot_rows, int64_t ep) {
  RETURN_IF_ERROR(CheckBatch(batch));
  RETURN_IF_ERROR(CheckDivides(ep, batch.experts));
  const double rest = batch.Assignments() - hot_rows;
  const auto others = static_cast<double>(batch.experts - 1);
  const auto tokens = static_cast<double>(batch.tokens);
  if (!(hot_rows >= 0 && hot_rows <= tokens && rest >= 0 && rest <= others * tokens)) {
    return Error{Code::kInvalidArgument,
                 Format("{} rows of the hot expert cannot be: {} tokens choose {} distinct experts "
                        "each, so an expert has at most {} rows, and the others take the rest",
                        hot_rows, batch.tokens, batch.experts_per_token, batch.tokens)};
  }
  const double other_rows = others > 0 ? rest / others : 0;
  const double each = static_cast<double>(batch.experts) / static_cast<double>(ep);
  const double hot_card = hot_rows + (each - 1) * other_rows;
  return CardRows{.busiest = ep > 1 ? std::max(hot_card, each * other_rows) : hot_card,
                  .mean = batch.Assignments() / static_cast<double>(ep)};
}

Result<std::vector<double>> RandomBusiestRatios(const RoutedBatch& batch,
                                                const std::vector<int64_t>& ep_sizes,
                                                const RandomRouting& routing) {
  RETURN_IF_ERROR(CheckBatch(batch));
  for (const int64_t ep : ep_sizes) RETURN_IF_ERROR(CheckDivides(ep, batch.experts));
  RETURN_IF_ERROR(
      RequireBetween({"batches", static_cast<double>(routing.batches)}, 1, kMostRandomWork));
  const double sums = static_cast<double>(batch.experts) * static_cast<double>(ep_sizes.size() + 1);
  RETURN_IF_ERROR(
      RequireBetween({"random work (batches times assignments and experts)",
                      static_cast<double>(routing.batches) * (batch.Assignments() + sums)},
                     1, kMostRandomWork));
  Router router(batch, routing.seed);
  std::vector<double> ratios(ep_sizes.size(), 0);
  for (int64_t i = 0; i < routing.batches; ++i) {
    const std::vector<int64_t>& rows = router.NextBatch();
    for (size_t size = 0; size < ep_sizes.size(); ++size) {
      ratios[size] += static_cast<double>(BusiestRows(rows, ep_sizes[size]));
    }
  }
  for (size_t size = 0; size < ep_sizes.size(); ++size) {
    const double mean = batch.Assignments() / static_cast<double>(ep_sizes[size]);
    ratios[size] /= static_cast<double>(routing.batches) * mean;
  }
  return ratios;
}

}  // namespace divisi
