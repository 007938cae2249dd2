#include "divisi/sim/sim_tiers.h"

#include <utility>

namespace divisi {
namespace {

// So small that pages are evicted all the time.
constexpr int64_t kHostPages = 12;
constexpr int64_t kDiskPages = 30;

}  // namespace

PrefixLoaderOptions SimTiers::Options() const {
  return {.tiers = {.host_pages = kHostPages,
                    .disk_pages = kDiskPages,
                    .pool = true,
                    .disk_writes = DiskWrites::kAll},
          .page = Bytes(static_cast<int64_t>(SimExecutor::PageBytes())),
          .layers = 1,
          .most_loading = 8,
          .follow = false,
          .peers = true};
}

void SimTiers::Restore(PrefixLoader& loader) {
  SimDisk left;
  for (const auto& [key, name] : disk_.names) {
    if (!loader.tiers().Restore(name)) continue;
    left.names[key] = name;
    left.pages[key] = disk_.pages.at(key);
  }
  disk_ = std::move(left);
}

void SimTiers::Export(std::string address) {
  exported_at_ = std::move(address);
  world_.pool->exported[exported_at_] = &host_;
}

void SimTiers::Withdraw() { world_.pool->exported.erase(exported_at_); }

const SimPageMap* SimTiers::Source(const LoadOrder& order, Tier tier) {
  if (tier != Tier::kPeer) return &In(tier);
  const auto peer = world_.pool->exported.find(order.peer);
  // Far enough away to be cut off, at times.
  const bool reached = peer != world_.pool->exported.end() && !world_.random.Chance(0.05);
  return reached ? peer->second : nullptr;
}

SimPageMap& SimTiers::In(Tier tier) {
  if (tier == Tier::kHost) return host_;
  return tier == Tier::kDisk ? disk_.pages : world_.pool->pages;
}

// Mostly as long as a step, at times far longer than computing would have been.
Seconds SimTiers::Wait() const {
  return Seconds(world_.random.Exponential(world_.random.Chance(0.05) ? 2 : 0.01));
}

void SimTiers::Carry(PrefixLoader& loader, const Later& later) {
  loader.Tick(world_.schedule.now());
  (void)loader.TakeUnwantedLoads();  // They go on here.
  for (const LoadOrder& order : loader.TakeLoads()) {
    later(Wait(), [this, &loader, order] { Load(loader, order); });
  }
  for (const TierAction& action : loader.TakeActions()) {
    if (action.kind == TierAction::Kind::kRemove) {
      Remove(action);
    } else {
      later(Wait(), [this, &loader, action] { Copy(loader, action); });
    }
  }
  for (const PoolQuestion& question : loader.TakeQuestions()) {
    if (world_.random.Chance(0.1)) continue;  // Nobody answers.
    later(Wait(), [this, &loader, question] { Answer(loader, question); });
  }
}

// Up to the first page that is gone, damaged or late.
void SimTiers::Load(PrefixLoader& loader, const LoadOrder& order) {
  LoadOutcome outcome{.id = order.id};
  const bool late = world_.schedule.now() >= order.deadline;
  for (const LoadOrder::Page& page : order.pages) {
    if (late) break;
    const SimPageMap* source = Source(order, page.tier);
    if (source == nullptr) break;  // That says nothing about the page.
    const auto found = source->find(page.key);
    const bool missing = found == source->end();
    if (missing || world_.random.Chance(0.02)) {
      outcome.bad.push_back({page.key, page.tier, !missing || page.tier != Tier::kPeer});
      break;
    }
    device_.WritePage(page.block, found->second);
    ++outcome.pages;
    world_.pool->pages_read += page.tier == Tier::kRemote;
    world_.pool->peer_pages += page.tier == Tier::kPeer;
  }
  const bool whole = outcome.pages == static_cast<int64_t>(order.pages.size());
  ++(whole ? world_.pool->loads : world_.pool->failed_loads);
  loader.LoadEnded(outcome);
}

void SimTiers::Remove(const TierAction& action) {
  In(action.from).erase(action.page.key);
  if (action.from == Tier::kDisk) disk_.names.erase(action.page.key);
}

// The device's page is read at the end: what was not kept in place until then would show.
void SimTiers::Copy(PrefixLoader& loader, const TierAction& action) {
  const BlockKey& key = action.page.key;
  const bool device = action.from == Tier::kDevice;
  const bool done = (device || In(action.from).contains(key)) && !world_.random.Chance(0.03);
  if (done) {
    In(action.to)[key] = device ? device_.ReadPage(action.block) : In(action.from).at(key);
    if (action.to == Tier::kDisk) disk_.names[key] = action.page;
  }
  loader.SaveEnded(action.id, done, world_.schedule.now());
}

void SimTiers::Answer(PrefixLoader& loader, const PoolQuestion& question) {
  std::vector<bool> have;
  for (const BlockKey& key : question.keys) have.push_back(In(Tier::kRemote).contains(key));
  loader.PoolAnswered(question.id, have, world_.schedule.now());
}

}  // namespace divisi
