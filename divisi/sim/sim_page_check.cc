#include "divisi/sim/sim_page_check.h"

#include <array>
#include <numeric>
#include <vector>

#include "divisi/control/route_prefix.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

// What is wrong with what is known of one page; empty: nothing.
std::string CheckPage(PageDirectory& known, SimWorker& worker, const BlockKey& key, Seconds now) {
  const bool device = worker.core().worker().HasPage(key);
  std::vector<Tier> below;
  if (auto* prefixes = worker.core().prefixes()) below = prefixes->tiers().Find({&key, 1}, 0);
  const bool host = device || (!below.empty() && below[0] == Tier::kHost);
  const bool any = device || !below.empty();
  const auto pages = known.FindExactly(worker.life(), {&key, 1}, now).pages;
  if (pages == std::array<int32_t, kTiers>{device, host, any, any}) return {};
  return Format(
      "worker {}'s page {} is on device, in host memory, on disk: {} {} {}; known: {} {} {}",
      worker.life().value, key.Hex().substr(0, 8), device, host, any, pages[0], pages[1], pages[2]);
}

// Of one worker's; empty: nothing.
std::string CheckWorker(GatewayCore& gateway, SimWorker& worker, const std::set<BlockKey>& keys,
                        Seconds now) {
  PageDirectory& known = *gateway.pages();
  const NodeId life = worker.life();
  const auto tiers = known.tier_pages_of(life);
  const int64_t all = std::accumulate(tiers.begin(), tiers.end(), int64_t{0});
  if (all != worker.core().news().held) {
    return Format("gateway {} knows {} pages of worker {}, which holds {}", gateway.self().value,
                  all, life.value, worker.core().news().held);
  }
  for (const BlockKey& key : keys) {
    if (std::string wrong = CheckPage(known, worker, key, now); !wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace

SimKnownPages CheckKnownPages(GatewayCore& gateway, const SimPagesThere& there, Seconds now) {
  PageDirectory& known = *gateway.pages();
  known.Verify();
  SimKnownPages result;
  for (const auto& worker : there.workers) {
    result.pairs += known.pages_of(worker->life());
    if (result.fault.empty()) result.fault = CheckWorker(gateway, *worker, there.keys, now);
  }
  const int64_t in_pool = known.pages_of(kPoolHolder);
  const auto pool = static_cast<int64_t>(there.pool.pages.size());
  if (result.fault.empty() && there.pool.events != nullptr && in_pool != pool) {
    result.fault = Format("gateway {} knows {} pages of the pool, which holds {}",
                          gateway.self().value, in_pool, pool);
  }
  int64_t pairs = result.pairs + in_pool;
  // Of several gateways each forgets one that it only doubts in its time.
  for (const auto& [node, member] : gateway.registry().members()) {
    if (member.doubted && !there.lives(node)) pairs += known.pages_of(node);
  }
  if (result.fault.empty() && known.stats().pairs != pairs) {
    result.fault = "a gateway knows pages of one that is gone";
  }
  return result;
}

}  // namespace divisi
