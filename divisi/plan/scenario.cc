#include "divisi/plan/scenario.h"

#include <algorithm>

namespace divisi {

const char* EvidenceName(Evidence evidence) {
  constexpr const char* kNames[] = {"given", "calibrated", "derived", "extrapolated"};
  return kNames[static_cast<int>(evidence)];
}

const char* SchemeName(Scheme scheme) {
  constexpr const char* kNames[] = {"replicas", "replicas-chunked", "pd-direct", "pd-pool"};
  return kNames[static_cast<int>(scheme)];
}

double EfficiencyCurve::At(double batch) const {
  if (batch <= points.front().batch) return points.front().fraction;
  for (size_t i = 1; i < points.size(); ++i) {
    const Point& a = points[i - 1];
    const Point& b = points[i];
    if (batch > b.batch) continue;
    return a.fraction + (b.fraction - a.fraction) * (batch - a.batch) / (b.batch - a.batch);
  }
  return points.back().fraction;
}

bool EfficiencyCurve::Extrapolates(double batch) const {
  return points.size() > 1 && (batch < points.front().batch || batch > points.back().batch);
}

double Scenario::PricePerHour() const {
  if (price_per_hour) return *price_per_hour;
  double sum = 0;
  for (const CardGroup& group : groups) sum += group.count * group.price_per_hour;
  return sum;
}

Seconds Scenario::Horizon() const {
  // Where nobody asked for a time, the queue is shown for this long.
  constexpr Seconds kShown(120);
  return std::max({kShown, startup * 2, objective.clear_by.value_or(Seconds(0)) * 1.2});
}

double Scenario::TotalWeight() const {
  double sum = 0;
  for (const RequestClass& request : workload.classes) sum += request.weight;
  return sum;
}

}  // namespace divisi
