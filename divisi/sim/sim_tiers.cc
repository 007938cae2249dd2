#include "divisi/sim/sim_tiers.h"

#include <algorithm>
#include <utility>

#include "divisi/kv/event_log.h"
#include "divisi/sim/sim_events.h"

namespace divisi {
namespace {

// After its deadline a read has so long to end by itself, as TierIo has it.
constexpr Seconds kGrace{0.05};
// What a page holds of which some layers are read.
constexpr std::byte kTorn{0x5a};

}  // namespace

// ---- The pool

void SimPool::Put(const BlockKey& key, const std::vector<std::byte>& content) {
  if (!pages.try_emplace(key, content).second || events == nullptr) return;
  events->Publish(kLife, {PageStored(key, nullptr, {}, EventTier::kRemote)});
}

void SimPool::Erase(const BlockKey& key) {
  if (pages.erase(key) == 0 || events == nullptr) return;
  events->Publish(kLife, {PageRemoved(key, EventTier::kRemote)});
}

int64_t SimPool::Lose(double part, Random& random) {
  std::vector<BlockKey> lost;
  for (const auto& [key, content] : pages) {
    if (random.Chance(part)) lost.push_back(key);
  }
  for (const BlockKey& key : lost) Erase(key);
  return static_cast<int64_t>(lost.size());
}

void SimPool::Clear() {
  pages.clear();
  if (events != nullptr) events->Publish(kLife, {ClearedEvent{}});
}

// ---- A worker's

SimTiers::SimTiers(const SimWorld& world, const PrefixLoaderOptions& options, SimExecutor& device,
                   SimDisk& disk)
    : world_(world), options_(options), device_(device), disk_(disk) {
  if (world_.random.Chance(0.7)) return;
  // Reading takes about as long as computing.
  for (BytesPerSecond* rate : {&speeds_.host, &speeds_.disk, &speeds_.remote, &speeds_.peer}) {
    *rate = options_.page / Seconds(world_.random.Exponential(0.01) + 1e-6);
  }
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
  if (tier == Tier::kRemote && world_.pool->away) return nullptr;
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
  loader.SetSpeeds(speeds_);
  loader.Tick(world_.schedule.now());
  for (LoadOrder& order : loader.TakeLoads()) Begin(loader, std::move(order), later);
  for (const uint64_t id : loader.TakeUnwantedLoads()) GiveUp(loader, id, later);
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

// ---- Loads

void SimTiers::Begin(PrefixLoader& loader, LoadOrder order, const Later& later) {
  const uint64_t id = order.id;
  const auto some = [&order](Tier tier) {
    return std::ranges::any_of(order.pages, [tier](const auto& page) { return page.tier == tier; });
  };
  Loading& load = loading_[id];
  load.outcome.id = id;
  load.by_page = some(Tier::kPeer) || (some(Tier::kRemote) && !order.by_layers);
  load.usable = order.pages.size();
  load.order = std::move(order);
  // A read that hangs is given up.
  later(load.order.deadline + kGrace - world_.schedule.now(),
        [this, &loader, id, later] { GiveUp(loader, id, later); });
  ReadSoon(loader, id, later);
}

void SimTiers::ReadSoon(PrefixLoader& loader, uint64_t id, const Later& later) {
  const Seconds whole = Wait();
  const Seconds wait = loading_.at(id).by_page ? whole : whole * (1.0 / options_.layers);
  later(wait, [this, &loader, id, later] { Read(loader, id, later); });
}

void SimTiers::Read(PrefixLoader& loader, uint64_t id, const Later& later) {
  const auto found = loading_.find(id);
  if (found == loading_.end()) return;  // It was given up.
  if (found->second.by_page) {
    ReadPages(found->second);
  } else if (!ReadLayer(found->second)) {
    return ReadSoon(loader, id, later);
  }
  End(loader, id, later);
}

// The page's content; null: the load's usable pages end before it.
const std::vector<std::byte>* SimTiers::Find(Loading& load, size_t index) {
  const LoadOrder::Page& page = load.order.pages[index];
  const SimPageMap* source = Source(load.order, page.tier);
  const auto cut = [&]() -> const std::vector<std::byte>* {
    load.usable = index;
    load.order.gate->Fail();
    return nullptr;
  };
  if (source == nullptr) return cut();  // That says nothing about the page.
  const auto found = source->find(page.key);
  const bool missing = found == source->end();
  const double damage = load.by_page ? 0.02 : 0.02 / options_.layers;
  if (!missing && !world_.random.Chance(damage)) return &found->second;
  load.outcome.bad.push_back({page.key, page.tier, /*damaged=*/!missing});
  if (page.tier == Tier::kRemote) world_.pool->Erase(page.key);
  return cut();
}

// In order: at the deadline there are those that were read by then.
void SimTiers::ReadPages(Loading& load) {
  const auto all = static_cast<int64_t>(load.usable);
  const bool late = world_.schedule.now() >= load.order.deadline;
  const int64_t until = late ? world_.random.Between(0, all - 1) : all;
  for (int64_t i = 0; i < until; ++i) {
    const auto* content = Find(load, static_cast<size_t>(i));
    if (content == nullptr) break;
    device_.WritePage(load.order.pages[static_cast<size_t>(i)].block, *content);
    ++load.outcome.pages;
  }
  if (load.outcome.pages == all) load.order.gate->Open(options_.layers);
}

// The next layer of all pages; true: it was the last one, or there is none for anybody.
bool SimTiers::ReadLayer(Loading& load) {
  if (world_.schedule.now() >= load.order.deadline) return true;
  const bool last = ++load.layers == options_.layers;
  const std::vector<std::byte> torn(SimExecutor::PageBytes(), kTorn);
  for (size_t i = 0; i < load.usable; ++i) {
    const auto* content = Find(load, i);
    if (content != nullptr) device_.WritePage(load.order.pages[i].block, last ? *content : torn);
  }
  if (load.usable == 0) return true;
  load.order.gate->Open(load.layers);
  if (last) load.outcome.pages = static_cast<int64_t>(load.usable);
  return last;
}

void SimTiers::End(PrefixLoader& loader, uint64_t id, const Later& later) {
  const Loading load = std::move(loading_.extract(id).mapped());
  SimPool& pool = *world_.pool;
  for (int64_t i = 0; i < load.outcome.pages; ++i) {
    const Tier tier = load.order.pages[static_cast<size_t>(i)].tier;
    pool.pages_read += tier == Tier::kRemote;
    pool.peer_pages += tier == Tier::kPeer;
  }
  const bool whole = load.outcome.pages == static_cast<int64_t>(load.order.pages.size());
  ++(whole ? pool.loads : pool.failed_loads);
  if (!whole) load.order.gate->Fail();
  // The loader hears of it a little later: a step may have gone through the gate by then.
  later(Seconds(world_.random.Exponential(0.001)),
        [&loader, outcome = load.outcome] { loader.LoadEnded(outcome); });
}

// Nothing of it is used. One that has ended meanwhile is as it is.
void SimTiers::GiveUp(PrefixLoader& loader, uint64_t id, const Later& later) {
  const auto found = loading_.find(id);
  if (found == loading_.end()) return;
  found->second.outcome = {.id = id};
  End(loader, id, later);
}

// ---- Saves and questions

void SimTiers::Remove(const TierAction& action) {
  if (action.from == Tier::kRemote) return world_.pool->Erase(action.page.key);
  In(action.from).erase(action.page.key);
  if (action.from == Tier::kDisk) disk_.names.erase(action.page.key);
}

// The device's page is read at the end: what was not kept in place until then would show.
void SimTiers::Copy(PrefixLoader& loader, const TierAction& action) {
  const BlockKey& key = action.page.key;
  const bool device = action.from == Tier::kDevice;
  const bool away = action.to == Tier::kRemote && world_.pool->away;
  const bool there = device || In(action.from).contains(key);
  const bool done = there && !away && !world_.random.Chance(0.03);
  if (done) {
    const auto content = device ? device_.ReadPage(action.block) : In(action.from).at(key);
    if (action.to == Tier::kRemote) {
      world_.pool->Put(key, content);
    } else {
      In(action.to)[key] = content;
    }
    if (action.to == Tier::kDisk) disk_.names[key] = action.page;
  }
  loader.SaveEnded(action.id, done, world_.schedule.now());
}

void SimTiers::Answer(PrefixLoader& loader, const PoolQuestion& question) {
  std::vector<bool> have;  // Empty: it is known that nobody will answer.
  const bool away = world_.pool->away;
  if (away && world_.random.Chance(0.5)) return;
  for (const BlockKey& key : question.keys) {
    if (!away) have.push_back(In(Tier::kRemote).contains(key));
  }
  loader.PoolAnswered(question.id, have, world_.schedule.now());
}

}  // namespace divisi
