#include "divisi/plan/kv_tiers.h"

#include <algorithm>
#include <cmath>

#include "divisi/core/check.h"
#include "divisi/plan/flow.h"

namespace divisi {
namespace {

constexpr double kSecondsPerDay = 86400;

}  // namespace

BytesPerSecond ProductionRate(Bytes kv, Seconds prefill, double hit) {
  return RateToMove(kv, prefill) * std::clamp(1 - hit, 0.0, 1.0);
}

Seconds Residence(Bytes capacity, BytesPerSecond production) {
  return production.value > 0 ? capacity / production : kNever;
}

Bytes CapacityToKeep(BytesPerSecond production, Seconds interval) {
  return Flowed(production, interval);
}

int64_t WholeObjects(Bytes capacity, Bytes object) {
  return object.value > 0 ? std::max<int64_t>(capacity.value, 0) / object.value : 0;
}

Seconds FetchTime(Bytes kv, Tier tier, const TierRates& rates) {
  switch (tier) {
    case Tier::kDevice:
      return Seconds(0);
    case Tier::kHost:
      return TimeToMove(kv, rates.host_to_device);
    case Tier::kDisk:
      return TimeToMove(kv, rates.disk_read);
    case Tier::kRemote:
    case Tier::kPeer:
      return TimeToMove(kv, rates.network) + TimeToMove(kv, rates.host_to_device);
  }
  return kNever;
}

Seconds LayerwiseLoad::Total(int preloaded) const {
  CHECK(layers >= 1 && preloaded >= 0 && preloaded <= layers, "{} of {} layers", preloaded, layers);
  const int rest = layers - preloaded;
  if (rest == 0) return compute;
  const Seconds layer_read = read / double(layers);
  const Seconds layer_compute = compute / double(layers);
  return std::max({compute, layer_read + layer_compute * double(rest),
                   layer_read * double(rest) + layer_compute});
}

int LayerwiseLoad::BufferLayers() const {
  if (!(read > compute)) return 0;
  if (!std::isfinite(read.value)) return layers;
  return std::min(layers, static_cast<int>(std::ceil(layers * ((read - compute) / read))));
}

int LayerwiseLoad::LayersToHide() const {
  int preloaded = BufferLayers();  // Fewer do not do.
  while (preloaded < layers && Total(preloaded) > compute) ++preloaded;
  return preloaded;
}

Bytes BufferBytes(Bytes kv, const LayerwiseLoad& load) {
  if (!(load.read > load.compute)) return Bytes(0);
  if (!std::isfinite(load.read.value)) return kv;
  return Times(kv, (load.read - load.compute) / load.read);
}

std::optional<Tokens> TokensToHide(const ModelCost& model, const DeviceRates& rates, Tokens cached,
                                   Seconds read) {
  const auto hides = [&](int64_t tokens) {
    return TimeOf(model.Prefill(Tokens(tokens), cached), rates).Total() >= read;
  };
  if (!hides(kMostTokensToHide.value)) return std::nullopt;
  int64_t too_few = 0;
  int64_t enough = kMostTokensToHide.value;
  while (enough - too_few > 1) {
    const int64_t middle = too_few + (enough - too_few) / 2;
    (hides(middle) ? enough : too_few) = middle;
  }
  return Tokens(enough);
}

BytesPerSecond Endurance::AllowedWrites() const {
  return BytesPerSecond(static_cast<double>(capacity.value) * writes_per_day / kSecondsPerDay);
}

double Endurance::Excess(BytesPerSecond rate) const {
  if (rate.value <= 0) return 0;
  const BytesPerSecond allowed = AllowedWrites();
  return allowed.value > 0 ? rate / allowed : kNever.value;
}

double Endurance::SustainedShare(BytesPerSecond rate) const {
  const double excess = Excess(rate);
  return excess > 1 ? 1 / excess : 1;
}

Seconds Endurance::LifeAt(BytesPerSecond rate) const {
  const double excess = Excess(rate);
  return excess > 0 ? rated_life / excess : kNever;
}

}  // namespace divisi
