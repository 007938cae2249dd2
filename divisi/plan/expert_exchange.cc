#include "divisi/plan/expert_exchange.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "divisi/core/format.h"
#include "divisi/plan/checks.h"

namespace divisi {
namespace {

std::vector<double> SourceRows(const ExpertExchange& exchange) {
  std::vector<double> sums;
  for (const auto& row : exchange.rows) {
    sums.push_back(std::accumulate(row.begin(), row.end(), 0.0));
  }
  return sums;
}

double CutRows(const ExpertExchange& exchange, const SharedCut& cut) {
  double sum = 0;
  for (const size_t source : cut.sources) {
    for (const size_t group : cut.groups) sum += exchange.rows[source][group];
  }
  return sum;
}

Seconds Transfer(double rows, Bytes row_bytes, BytesPerSecond bandwidth) {
  return Seconds(rows * static_cast<double>(row_bytes.value) / bandwidth.value);
}

// Dispatch: sources send, groups receive. Combine: the other way.
Seconds BoundExchange(const ExpertExchange& exchange, const ExchangeNetwork& network,
                      bool dispatch) {
  const Bytes row_bytes = dispatch ? exchange.dispatch_bytes : exchange.combine_bytes;
  Seconds bound;
  const auto meet = [&](double rows, BytesPerSecond bandwidth) {
    bound = std::max(bound, Transfer(rows, row_bytes, bandwidth));
  };
  const std::vector<double> source_rows = SourceRows(exchange);
  for (size_t i = 0; i < source_rows.size(); ++i) {
    const CardLinks& card = network.sources[i];
    meet(source_rows[i], dispatch ? card.send : card.receive);
  }
  const std::vector<double> group_rows = exchange.GroupRows();
  for (size_t j = 0; j < group_rows.size(); ++j) {
    const CardLinks& card = network.groups[j];
    meet(group_rows[j], dispatch ? card.receive : card.send);
  }
  for (const SharedCut& cut : network.cuts) meet(CutRows(exchange, cut), cut.bandwidth);
  return bound;
}

Result<void> CheckRows(const ExpertExchange& exchange) {
  const size_t groups = exchange.rows.empty() ? 0 : exchange.rows.front().size();
  double sum = 0;
  for (const auto& row : exchange.rows) {
    if (row.size() != groups) {
      return Error{Code::kInvalidArgument,
                   Format("a source sends to {} groups, another to {}; give each as many",
                          row.size(), groups)};
    }
    for (const double rows : row) {
      RETURN_IF_ERROR(RequireBetween({"rows of a group", rows}, 0, 0x1p60));
      sum += rows;
    }
  }
  return RequirePositive(
      {{"rows of all groups", sum},
       {"bytes of a dispatched row", static_cast<double>(exchange.dispatch_bytes.value)},
       {"bytes of a combined row", static_cast<double>(exchange.combine_bytes.value)}});
}

Result<void> CheckCards(const std::vector<CardLinks>& cards, size_t wanted) {
  if (cards.size() != wanted) {
    return Error{Code::kInvalidArgument, Format("the network has {} cards on a side where rows go "
                                                "between {}; give one entry for each",
                                                cards.size(), wanted)};
  }
  for (const CardLinks& card : cards) {
    RETURN_IF_ERROR(RequirePositive({{"bandwidth of sending", card.send.value},
                                     {"bandwidth of receiving", card.receive.value}}));
  }
  return {};
}

Result<void> CheckCut(const SharedCut& cut, const ExpertExchange& exchange) {
  RETURN_IF_ERROR(RequirePositive({{"bandwidth of the cut", cut.bandwidth.value}}));
  const auto beyond = [](const std::vector<size_t>& cards, size_t count) {
    return std::any_of(cards.begin(), cards.end(), [&](size_t card) { return card >= count; });
  };
  if (!beyond(cut.sources, exchange.rows.size()) &&
      !beyond(cut.groups, exchange.rows.front().size())) {
    return {};
  }
  return Error{Code::kInvalidArgument, "a cut names a card that is not there"};
}

}  // namespace

std::vector<double> ExpertExchange::GroupRows() const {
  std::vector<double> sums(rows.empty() ? 0 : rows.front().size(), 0);
  for (const auto& row : rows) {
    for (size_t j = 0; j < sums.size(); ++j) sums[j] += row[j];
  }
  return sums;
}

double ExpertExchange::Skew() const {
  const std::vector<double> sums = GroupRows();
  const double total = std::accumulate(sums.begin(), sums.end(), 0.0);
  return *std::max_element(sums.begin(), sums.end()) * static_cast<double>(sums.size()) / total;
}

ExpertExchange EvenSources(const std::vector<double>& group_rows, int sources, Bytes row_bytes) {
  std::vector<double> each = group_rows;
  for (double& rows : each) rows /= sources;
  return {.rows = std::vector<std::vector<double>>(static_cast<size_t>(sources), each),
          .dispatch_bytes = row_bytes,
          .combine_bytes = row_bytes};
}

ExchangeNetwork UniformNetwork(size_t sources, size_t groups, BytesPerSecond card,
                               BytesPerSecond cut) {
  SharedCut around{.bandwidth = cut};
  for (size_t i = 0; i < sources; ++i) around.sources.push_back(i);
  for (size_t j = 0; j < groups; ++j) around.groups.push_back(j);
  const CardLinks links{.send = card, .receive = card};
  return {.sources = std::vector<CardLinks>(sources, links),
          .groups = std::vector<CardLinks>(groups, links),
          .cuts = {around}};
}

Result<ExpertLayerBounds> BoundExpertLayer(const ExpertExchange& exchange,
                                           const ExchangeNetwork& network,
                                           const ExpertGroupWork& work) {
  RETURN_IF_ERROR(CheckRows(exchange));
  RETURN_IF_ERROR(CheckCards(network.sources, exchange.rows.size()));
  RETURN_IF_ERROR(CheckCards(network.groups, exchange.rows.front().size()));
  for (const SharedCut& cut : network.cuts) RETURN_IF_ERROR(CheckCut(cut, exchange));
  RETURN_IF_ERROR(RequirePositive({{"computing rate", work.rates.compute.value},
                                   {"memory bandwidth", work.rates.memory.value}}));
  ExpertLayerBounds bounds;
  for (const double rows : exchange.GroupRows()) {
    const Work group{.flops = work.row_flops * rows, .bytes = work.weights};
    bounds.compute = std::max(bounds.compute, TimeOf(group, work.rates).Total());
  }
  bounds.dispatch = BoundExchange(exchange, network, true);
  bounds.combine = BoundExchange(exchange, network, false);
  return bounds;
}

}  // namespace divisi
