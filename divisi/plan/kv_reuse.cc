#include "divisi/plan/kv_reuse.h"

#include <cmath>

#include "divisi/plan/flow.h"

namespace divisi {
namespace {

// Nothing, however long each takes, takes no time.
Seconds Repeated(Seconds each, double count) { return count > 0 ? each * count : Seconds(0); }

}  // namespace

Seconds ReuseTimes::Stored(double uses) const { return write + Repeated(read, uses); }

Seconds ReuseTimes::Recomputed(double uses) const { return Repeated(recompute, uses); }

Seconds ReuseTimes::Saved(double uses) const {
  const Seconds stored = Stored(uses);
  const Seconds recomputed = Recomputed(uses);
  // Two infinities have no difference.
  return stored == recomputed ? Seconds(0) : recomputed - stored;
}

std::optional<double> ReuseTimes::UsesToPay() const {
  if (!(read < recompute) || !std::isfinite(write.value)) return std::nullopt;
  const double equal = std::isfinite(recompute.value) ? write / (recompute - read) : 0;
  return std::floor(equal) + 1;
}

BytesPerSecond BreakEvenBandwidth(Bytes kv, double uses, Seconds recompute) {
  if (!(uses > 0)) return BytesPerSecond(kNever.value);
  return RateToMove(kv, recompute) * ((1 + uses) / uses);
}

Bytes RepeatedReads::Total() const { return Times(state, count); }

Seconds RepeatedReads::LinkTime(BytesPerSecond link) const {
  return Repeated(TimeToMove(state, link), count);
}

BytesPerSecond RepeatedReads::NeededBandwidth(Seconds time) const {
  if (!(count > 0)) return BytesPerSecond(0);
  return RateToMove(state, time) * count;
}

double HeldByteSeconds(Bytes state, Seconds time) {
  return static_cast<double>(state.value) * time.value;
}

Bytes PoolTraffic::PerRequest() const { return Times(state, moves); }

BytesPerSecond PoolTraffic::At(PerSecond requests) const { return state * requests * moves; }

PerSecond PoolTraffic::MostRequests(BytesPerSecond link) const {
  const double bytes = static_cast<double>(state.value) * moves;
  return PerSecond(bytes > 0 ? link.value / bytes : kNever.value);
}

}  // namespace divisi
