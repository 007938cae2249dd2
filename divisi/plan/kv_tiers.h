// KV in tiers below the card: how fast it is made, how long each tier keeps it, how long each takes
// to give it back, how much of that computing hides, and what a disk's endurance lets it take.
// Source: section 9.5.2.
#pragma once

#include <cstdint>
#include <optional>

#include "divisi/core/units.h"
#include "divisi/plan/pass_cost.h"
#include "divisi/plan/stage.h"

namespace divisi {

// The rate at which a device that prefills without pause makes KV, of which `hit` (0 to 1) was in
// the cache already:  r = V (1 - hit) / T_prefill.   Infinite for a prefill that takes no time.
BytesPerSecond ProductionRate(Bytes kv, Seconds prefill, double hit = 0);

// How long a tier that takes all new KV and evicts in order of writing keeps it:  C / r.
// kNever (it is never evicted) when nothing is made.
Seconds Residence(Bytes capacity, BytesPerSecond production);

// Capacity that keeps KV for `interval` after it was made:  C = r T.
Bytes CapacityToKeep(BytesPerSecond production, Seconds interval);

// Whole objects that fit. With host memory as capacity it is the depth of prefetching: how many of
// the first requests in the queue can have their prefix read ahead. 0 for objects of no bytes.
int64_t WholeObjects(Bytes capacity, Bytes object);

// kPeer: another worker's host memory, where a load may read, too; nothing is kept there.
enum class Tier { kDevice, kHost, kDisk, kRemote, kPeer };
inline constexpr int kTiers = 4;    // That pages are kept in
inline constexpr int kSources = 5;  // That a load may read

// Payload rates of one direction.
struct TierRates {
  BytesPerSecond host_to_device;  // PCIe
  BytesPerSecond disk_read;
  BytesPerSecond network;
};

// Seconds until KV of a tier is on the device. Remote KV goes over the network into host memory,
// then over PCIe, one after the other; a local disk's read is all that its path costs. kNever over
// a path of no rate.
Seconds FetchTime(Bytes kv, Tier tier, const TierRates& rates);

// Loading layer by layer: while one layer computes, the next ones are read.
struct LayerwiseLoad {
  int layers = 1;   // All alike; >= 1.
  Seconds read;     // Of the whole cached KV.
  Seconds compute;  // Of the new tokens through all layers.

  // Everything is read, then computed:  T_read + T_new.
  Seconds Serial() const { return read + compute; }

  // The end of computing when `preloaded` first layers (0 to `layers`) were read before the start:
  //   max(L c, r + (L - k) c, (L - k) r + c),  r, c: one layer's read and compute, k: preloaded.
  // With k = 0 this is the full read and one layer's compute where reading is slower, one layer's
  // read and the full compute where it is not.
  Seconds Total(int preloaded = 0) const;

  // Layers that must be preloaded so that reading falls behind computing by nothing in all:
  //   ceil(L (T_read - T_new) / T_read).   0 where T_new >= T_read. Source: S_buf, in layers.
  int BufferLayers() const;

  // The smallest k with Total(k) == compute: the buffer, and the layer without which computing
  // could not start.
  int LayersToHide() const;

  // When computing may begin so that it never waits for a layer: T_read k / L, k = LayersToHide.
  Seconds StartAfter() const { return read * (LayersToHide() / double(layers)); }
};

// Bytes by which reading exceeds computing:  S_buf = B (T_read - T_new), before rounding up to
// whole layers. `kv` is what `load.read` reads, so B = kv / T_read.
Bytes BufferBytes(Bytes kv, const LayerwiseLoad& load);

// The smallest count of new tokens, after `cached` ones, that takes at least `read` to compute, so
// that a layer-wise read of the cached KV is hidden. None up to kMostTokensToHide.
inline constexpr Tokens kMostTokensToHide = Tokens(int64_t{1} << 30);
std::optional<Tokens> TokensToHide(const ModelCost& model, const DeviceRates& rates, Tokens cached,
                                   Seconds read);

// A disk's rated endurance.
struct Endurance {
  Bytes capacity;
  double writes_per_day = 1;  // Of the whole capacity (DWPD).
  Seconds rated_life;

  // The mean rate of writing that uses it up at the end of the rated life:  C DWPD / 86400 s.
  BytesPerSecond AllowedWrites() const;
  // How many times writing at `rate` exceeds that.
  double Excess(BytesPerSecond rate) const;
  // The share of what is written at `rate` that the disk can take for its rated life, at most 1.
  double SustainedShare(BytesPerSecond rate) const;
  // Until the endurance is used up at `rate`; kNever where nothing is written.
  Seconds LifeAt(BytesPerSecond rate) const;
};

}  // namespace divisi
