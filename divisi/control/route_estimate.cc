#include "divisi/control/route_estimate.h"

#include <algorithm>

#include "divisi/core/format.h"
#include "divisi/core/nearest.h"
#include "divisi/plan/flow.h"
#include "divisi/plan/kv_tiers.h"

namespace divisi {
namespace {

// Nothing, the parts of four tiers, a peer's, and what is promised.
constexpr int kMostDepths = 7;
// One for each depth's end, and a device's copy found in host memory.
constexpr int kMostPoints = kMostDepths + 1;
constexpr auto kDisk = static_cast<size_t>(Tier::kDisk);
constexpr auto kPool = static_cast<size_t>(Tier::kRemote);
constexpr auto kPeer = static_cast<size_t>(Tier::kPeer);

// Prefixes are shared in whole pages, and the last token is always computed.
int64_t Usable(int64_t tokens, int64_t prompt) {
  const int64_t most = std::max<int64_t>(prompt - 1, 0) / kBlockTokens * kBlockTokens;
  return std::clamp<int64_t>(tokens, 0, most);
}

class Estimating {
 public:
  Estimating(int64_t tokens, const RouteWorker& worker, const RouteSetting& setting, Seconds ready)
      : tokens_(tokens), worker_(worker), setting_(setting), ready_(ready) {}

  RouteEstimate Best() {
    Deepen({}, 0, 1);
    RouteEstimate part;
    int device = 0, own = 0;
    for (size_t t = 0; t < kTiers; ++t) {
      const int64_t more = Usable(worker_.prefix.tokens[t], tokens_) - part.cached;
      if (more > 0) {
        part.cached += more;
        part.from[t] = more;
        Deepen(part, count_ - 1, worker_.prefix.odds[t]);
      }
      if (t == 0) device = count_ - 1;
      if (t == kDisk) own = count_ - 1;
    }
    AddPeer(own);
    AddPromised(device);
    int best = 0;
    for (int i = 0; i < count_; ++i) {
      Weigh(i);
      // Of like costs the deeper: it leaves the worker's time to others.
      if (depths_[i].cost() <= depths_[best].cost()) best = i;
    }
    return depths_[best];
  }

 private:
  // What follows the worker's own tiers is read from a peer.
  void AddPeer(int own) {
    const RoutePrefix::Peer& peer = worker_.prefix.peer;
    RouteEstimate part = depths_[own];
    const int64_t more = Usable(peer.tokens, tokens_) - part.cached;
    if (more <= 0) return;
    part.cached += more;
    part.from[kPeer] = more;
    part.peer = peer.node;
    Deepen(part, own, peer.odds);
  }

  // What follows the device's own pages is computed by a prompt ahead, which then has them there.
  void AddPromised(int device) {
    if (worker_.prefix.promised <= worker_.prefix.tokens.back()) return;
    RouteEstimate part = depths_[device];
    part.awaited = Usable(worker_.prefix.promised, tokens_) - part.cached;
    if (part.awaited <= 0) return;
    part.cached += part.awaited;
    Deepen(part, device, 1);  // What is ahead is known, not told of.
  }

  // One depth more: `part`, which is there with the odds where that before it is.
  void Deepen(const RouteEstimate& part, int before, double odds) {
    RouteEstimate& at = depths_[count_];
    at = part;
    at.times.queue = worker_.queue;
    const TokenRange left{at.cached, tokens_};
    at.times.compute = worker_.rates.Prefill(left, worker_.chunk, worker_.decoding);
    at.work = worker_.rates.PromptWork(left);
    SetReady(at);
    at.odds = count_ == 0 ? 1 : depths_[before].odds * odds;
    before_[count_] = before;
    ++count_;
  }

  Bytes BytesOf(int64_t tokens) const { return setting_.bytes_per_token * tokens; }

  void SetReady(RouteEstimate& at) const {
    SetReads(at);
    const LayerwiseLoad load{
        .layers = setting_.layers, .read = at.reading, .compute = at.times.compute};
    // A peer's pages come whole, and others of the same load with them.
    const bool whole = setting_.layers <= 1 || at.from[kPeer] > 0;
    const bool follows = !whole && at.reading > Seconds(0);
    at.times.ready = ready_ + at.lookup + at.links + (follows ? load.StartAfter() : at.reading);
    if (at.awaited > 0) at.times.ready = std::max(at.times.ready, worker_.queue);
  }

  // Reads of a worker follow each other, whatever their tier.
  void SetReads(RouteEstimate& at) const {
    at.reading = at.links = at.lookup = Seconds(0);
    const WorkerRates& rates = worker_.rates;
    for (size_t t = 1; t < kSources; ++t) {
      at.reading += TimeToMove(BytesOf(at.from[t]), rates.read[t]);
    }
    // Who is given a peer does not ask.
    if (worker_.asks_pool && LacksSome() && at.from[kPeer] == 0) at.lookup = rates.lookup;
    if (at.reading == Seconds(0)) return;
    for (size_t t = 1; t < kSources; ++t) {
      at.links += TimeToMove(worker_.reading[t], rates.read[t]);
    }
    if (at.from[kPool] > 0) at.lookup = rates.lookup;
    Share(at, kPool, setting_.pool);
    Share(at, kPeer, worker_.prefix.peer.link);
  }

  // What others who read there now make it longer.
  void Share(RouteEstimate& at, size_t source, const SharedLink& link) const {
    const Bytes bytes = BytesOf(at.from[source]);
    if (bytes.value == 0 || link.rate.value <= 0) return;
    const Seconds alone = TimeToMove(bytes, worker_.rates.read[source]);
    at.reading += std::max(TimeToShare(bytes, link) - alone, Seconds(0));
  }

  // Of what the prompt can share, in the worker's own tiers.
  bool LacksSome() const {
    const int64_t own = worker_.prefix.tokens[kDisk];
    return Usable(own, tokens_) < Usable(tokens_, tokens_);
  }

  void Weigh(int depth) {
    RouteEstimate& at = depths_[depth];
    std::array<Outcome, kMostPoints> times, work;
    const size_t count = Spread(depth, times, work);
    const std::span<const Outcome> sorted(times.data(), count);
    at.expected = setting_.quantile ? QuantileOf(sorted, *setting_.quantile) : MeanOf(sorted);
    if (setting_.objective != RouteObjective::kTotal) return;
    const Seconds mean = MeanOf({work.data(), count});
    const double coming = setting_.arrivals * (at.times.queue + mean);
    at.delay = mean * (static_cast<double>(worker_.decoding) + coming);
  }

  // What may turn out to be there: times, in their order, and the work that each leaves.
  size_t Spread(int depth, std::span<Outcome> times, std::span<Outcome> work) const {
    size_t count = 0;
    const auto add = [&](double probability, const RouteEstimate& found) {
      const Seconds time = found.times.Overlapped();
      work[count] = {probability, found.work};
      size_t place = count++;
      for (; place > 0 && times[place - 1].time > time; --place) times[place] = times[place - 1];
      times[place] = {probability, time};
    };
    add(depths_[depth].odds, depths_[depth]);
    for (int at = depth; at > 0; at = before_[at]) {
      const RouteEstimate& before = depths_[before_[at]];
      double gone = before.odds - depths_[at].odds;
      const bool device = before_[at] == 0 && depths_[at].from[0] > 0;
      if (gone > 0 && device && HasHost()) gone -= AddHostCopy(depths_[at], gone, add);
      if (gone > 0) add(gone, before);
    }
    return count;
  }

  // The device's copy gone, that in host memory there: read, unless computing is sooner. Gives its
  // probability.
  template <typename Add>
  double AddHostCopy(const RouteEstimate& device, double gone, Add add) const {
    const double there = gone * worker_.prefix.odds[static_cast<size_t>(Tier::kHost)];
    RouteEstimate found = device;
    found.from = {0, device.from[0]};
    SetReady(found);
    add(there, found.times.Overlapped() <= depths_[0].times.Overlapped() ? found : depths_[0]);
    return there;
  }

  bool HasHost() const { return worker_.rates.read_measured[static_cast<size_t>(Tier::kHost)]; }

  const int64_t tokens_;
  const RouteWorker& worker_;
  const RouteSetting& setting_;
  const Seconds ready_;
  std::array<RouteEstimate, kMostDepths> depths_;
  std::array<int, kMostDepths> before_{};  // The depth that each one goes beyond
  int count_ = 0;
};

constexpr RouteObjective kObjectives[] = {RouteObjective::kRequest, RouteObjective::kTotal};

}  // namespace

const char* RoleName(WorkerRole role) {
  constexpr const char* kNames[] = {"replica", "prefill", "decode"};
  return kNames[static_cast<int>(role)];
}

Result<WorkerRole> ParseRole(const std::string& name) {
  for (const WorkerRole role : {WorkerRole::kReplica, WorkerRole::kPrefill, WorkerRole::kDecode}) {
    if (name == RoleName(role)) return role;
  }
  return Error{Code::kInvalidArgument,
               Format("'{}' is no role; there are replica, prefill and decode", name)};
}

const char* ObjectiveName(RouteObjective objective) {
  constexpr const char* kNames[] = {"request", "total"};
  return kNames[static_cast<int>(objective)];
}

Result<RouteObjective> ParseObjective(const std::string& name) {
  for (const RouteObjective objective : kObjectives) {
    if (name == ObjectiveName(objective)) return objective;
  }
  return Error{Code::kInvalidArgument,
               Format("'{}' is no objective; there are request and total", name)};
}

RouteEstimate EstimateRoute(int64_t prompt_tokens, const RouteWorker& worker,
                            const RouteSetting& setting, Seconds ready) {
  return Estimating(prompt_tokens, worker, setting, ready).Best();
}

}  // namespace divisi
