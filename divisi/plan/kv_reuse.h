// Whether to store KV for later: write once and fetch at each use, recompute at each use, fetch
// once and keep, or read from afar at every step. Source: section 9.5.2; sections 9.7.1 and 9.7.3
// for pools. Waiting in queues and what the stored KV displaces are left out.
#pragma once

#include <optional>

#include "divisi/core/units.h"

namespace divisi {

// Seconds of one write, one fetch and one recomputation of the same KV.
struct ReuseTimes {
  Seconds write;
  Seconds read;
  Seconds recompute;

  // T_write + k T_read.   uses: k >= 0
  Seconds Stored(double uses) const;
  // k T_recompute
  Seconds Recomputed(double uses) const;
  // What storing saves, less than 0 where it costs; 0 where neither ever ends.
  Seconds Saved(double uses) const;
  // T_write + k T_read < k T_recompute
  bool StoringPays(double uses) const { return Stored(uses) < Recomputed(uses); }
  // The smallest whole k for which storing pays; none where a fetch is no faster than recomputing.
  std::optional<double> UsesToPay() const;
};

// The bandwidth, of writing and reading alike, at which storing for `uses` uses takes as long as
// recomputing:  B = V (1 + k) / (k T_recompute).   Infinite for no uses. For many uses it falls to
// V / T_recompute, the rate at which the card makes KV: below that a fetch alone is slower.
BytesPerSecond BreakEvenBandwidth(Bytes kv, double uses, Seconds recompute);

// `count` reads of the same state over one link.
struct RepeatedReads {
  Bytes state;
  double count = 0;

  Bytes Total() const;
  Seconds LinkTime(BytesPerSecond link) const;
  // Needed so that all end within `time`.
  BytesPerSecond NeededBandwidth(Seconds time) const;
};

// What keeping V bytes for a time costs of a tier, in byte-seconds:  V t.
double HeldByteSeconds(Bytes state, Seconds time);

// A pool through which each request's state moves `moves` times (written once, read by the decode
// side, read again by each later use), all over one link.
struct PoolTraffic {
  Bytes state;
  double moves = 0;

  Bytes PerRequest() const;
  BytesPerSecond At(PerSecond requests) const;
  // Requests that the link carries; infinite where nothing moves.
  PerSecond MostRequests(BytesPerSecond link) const;
};

}  // namespace divisi
