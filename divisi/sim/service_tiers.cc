#include "divisi/sim/service_tiers.h"

#include <algorithm>
#include <utility>

#include "divisi/core/check.h"
#include "divisi/kv/event_log.h"

namespace divisi {
namespace {

size_t At(Tier tier) { return static_cast<size_t>(tier); }

}  // namespace

void ServiceStore::TellNews() {
  std::vector<KvEvent> told;
  for (const StoreSpace::Change& change : space.TakeChanges()) {
    if (change.visible) {
      told.push_back(PageStored(change.key, nullptr, {}, EventTier::kRemote));
    } else {
      told.push_back(PageRemoved(change.key, EventTier::kRemote));
    }
  }
  if (news && !told.empty()) news(std::move(told));
}

ServiceTierDriver::ServiceTierDriver(const ServiceTiers& tiers, Bytes page, World world)
    : tiers_(tiers),
      page_(page),
      world_(std::move(world)),
      to_device_(world_.flows.AddLink(tiers.pcie)),
      from_device_(world_.flows.AddLink(tiers.pcie)),
      net_in_(world_.flows.AddLink(tiers.network)),
      net_out_(world_.flows.AddLink(tiers.network)),
      disk_out_(world_.flows.AddLink(tiers.disk_read)),
      disk_in_(world_.flows.AddLink(tiers.disk_write)) {}

PrefixLoaderOptions ServiceTierDriver::Options(int64_t device_pages) const {
  return {.tiers = {.host_pages = tiers_.host_pages,
                    .disk_pages = tiers_.disk_pages,
                    .pool = world_.store != nullptr,
                    .disk_writes = tiers_.disk_writes,
                    .budget = tiers_.disk_budget},
          .page = page_,
          .layers = 1,
          .most_loading = tiers_.loading_pages > 0 ? tiers_.loading_pages : device_pages * 3 / 4,
          .follow = false,
          .peers = world_.peers != nullptr};
}

TierSpeeds ServiceTierDriver::speeds() const {
  return {.host = rates_[At(Tier::kHost)].rate(),
          .disk = rates_[At(Tier::kDisk)].rate(),
          .remote = rates_[At(Tier::kRemote)].rate(),
          .peer = rates_[At(Tier::kPeer)].rate()};
}

SimPageMap& ServiceTierDriver::In(Tier tier) {
  if (tier == Tier::kHost) return host_;
  return tier == Tier::kDisk ? disk_ : world_.store->contents;
}

void ServiceTierDriver::Carry(PrefixLoader& loader, Seconds per_token) {
  loader_ = &loader;
  TierSpeeds measured = speeds();
  measured.per_token = per_token;
  loader.SetSpeeds(measured);
  loader.Tick(world_.schedule.now());
  for (LoadOrder& order : loader.TakeLoads()) Ask(std::move(order));
  for (const uint64_t load : loader.TakeUnwantedLoads()) GiveUp(load);
  std::map<std::pair<Tier, Tier>, std::vector<TierAction>> copies;
  for (const TierAction& action : loader.TakeActions()) {
    if (action.kind == TierAction::Kind::kCopy) {
      copies[{action.from, action.to}].push_back(action);
    } else if (world_.contents) {
      In(action.from).erase(action.page.key);
    }
  }
  for (auto& [way, actions] : copies) Save(std::move(actions));
  for (PoolQuestion& question : loader.TakeQuestions()) {
    world_.schedule.In(world_.store->options.lookup, [this, question = std::move(question)] {
      std::vector<bool> have;
      for (const BlockKey& key : question.keys) have.push_back(world_.store->space.Has(key));
      loader_->PoolAnswered(question.id, have, world_.schedule.now());
      world_.moved();
    });
  }
}

// ---- Loads, in the order in which they were asked for: by one thread, as TierIo's.

void ServiceTierDriver::Ask(LoadOrder order) {
  const uint64_t id = order.id;
  world_.schedule.At(order.deadline, [this, id] { GiveUp(id); });
  loads_.push_back(std::move(order));
  if (!loading_) StartLoad();
}

// It is late, or nobody wants it any more. Of one that has ended: nothing.
void ServiceTierDriver::GiveUp(uint64_t load) {
  if (loading_ && loading_->order.id == load) {
    return GiveUpLoad(world_.schedule.now() >= loading_->order.deadline);
  }
  const auto waits = [load](const LoadOrder& order) { return order.id == load; };
  if (std::erase_if(loads_, waits) == 0) return;
  loader_->LoadEnded({.id = load});
  CarrySoon();
}

void ServiceTierDriver::StartLoad() {
  if (loads_.empty()) return;
  Loading& load = loading_.emplace(Loading{.order = std::move(loads_.front())});
  loads_.pop_front();
  load.begun = world_.schedule.now();
  if (world_.peers != nullptr) {
    const auto peer = world_.peers->find(load.order.peer);
    if (peer != world_.peers->end()) load.peer = peer->second;
  }
  for (const LoadOrder::Page& page : load.order.pages) {
    if (!Begin(load, page)) break;  // Given up since it was asked for
    ++load.pages;
    load.bytes[At(page.tier)] += page_;
  }
  Read(Tier::kRemote);
}

// Whether the page is there, and stays so.
bool ServiceTierDriver::Begin(Loading& load, const LoadOrder::Page& page) {
  if (page.tier == Tier::kRemote) {
    const auto object = world_.store->space.Read(page.key);
    if (object) load.pinned.push_back(object->slot);
    return object.has_value();
  }
  if (page.tier != Tier::kPeer) return true;
  if (load.peer == nullptr || !load.peer->Gives(page.key)) return false;
  if (world_.contents) load.copied[page.key] = load.peer->host_.at(page.key);
  return true;
}

bool ServiceTierDriver::Gives(const BlockKey& key) const {
  if (world_.contents) return host_.contains(key);
  if (loader_ == nullptr) return false;
  const auto tiers = loader_->tiers().Find({&key, 1}, 0);
  return !tiers.empty() && tiers[0] == Tier::kHost;
}

// Pages of the pool and of other workers come one after the other, each on its whole way; others
// layer by layer, and none is there before all are. left: of the leg at hand.
int64_t ServiceTierDriver::ReadUntilNow(Bytes left) const {
  const Loading& load = *loading_;
  const auto& bytes = load.bytes;
  const Bytes network = bytes[At(Tier::kRemote)] + bytes[At(Tier::kPeer)];
  if (network == Bytes(0)) return 0;
  const Seconds now = world_.schedule.now();
  const Bytes upload = network + bytes[At(Tier::kHost)];
  const Bytes moved = (load.reading == Tier::kDevice ? upload : bytes[At(load.reading)]) - left;
  if (moved <= Bytes(0)) return 0;
  Seconds rest = (now - load.since) * (left / moved);
  const bool reads = load.reading != Tier::kDevice;
  if (reads) rest += upload / tiers_.pcie;
  if (reads && load.reading != Tier::kDisk) rest += bytes[At(Tier::kDisk)] / tiers_.disk_read;
  const Seconds taken = now - load.begun;
  return static_cast<int64_t>(static_cast<double>(load.pages) * (taken / (taken + rest)));
}

// What it has read says how fast reading is.
void ServiceTierDriver::GiveUpLoad(bool late) {
  Loading& load = *loading_;
  const Bytes left = world_.flows.Cancel(load.flow);
  const int64_t pages = late ? ReadUntilNow(left) : 0;
  const size_t at = At(load.reading);
  const Seconds took = world_.schedule.now() - load.since;
  if (load.reading != Tier::kDevice) rates_[at].Add(load.bytes[at] - left, took);
  late_loads_ += late;
  EndLoad(false, pages);
}

// Into host memory, or from the disk: one after the other, then to the device.
void ServiceTierDriver::Read(Tier tier) {
  Loading& load = *loading_;
  if (load.bytes[At(tier)].value == 0) return ReadAfter(tier);
  load.reading = tier;
  load.since = world_.schedule.now();
  std::vector<SimFlows::Link> path{disk_out_};
  if (tier == Tier::kRemote) path = {world_.store->out, net_in_};
  if (tier == Tier::kPeer) path = {load.peer->net_out_, net_in_};
  load.flow = world_.flows.Start(load.bytes[At(tier)], std::move(path), [this, tier] {
    loading_->took[At(tier)] = world_.schedule.now() - loading_->since;
    ReadAfter(tier);
  });
}

void ServiceTierDriver::ReadAfter(Tier tier) {
  if (tier == Tier::kRemote) return Read(Tier::kPeer);
  tier == Tier::kPeer ? Read(Tier::kDisk) : Upload();
}

void ServiceTierDriver::Upload() {
  Loading& load = *loading_;
  const Bytes host = load.bytes[At(Tier::kHost)];
  const Bytes remote = load.bytes[At(Tier::kRemote)] + load.bytes[At(Tier::kPeer)];
  load.reading = Tier::kDevice;
  load.since = world_.schedule.now();
  load.flow = world_.flows.Start(host + remote, {to_device_}, [this, host, remote] {
    Loading& done = *loading_;
    const Seconds took = world_.schedule.now() - done.since;
    const double total = std::max<double>(static_cast<double>((host + remote).value), 1);
    for (const Tier tier : {Tier::kHost, Tier::kRemote, Tier::kPeer}) {
      done.took[At(tier)] += took * (static_cast<double>(done.bytes[At(tier)].value) / total);
    }
    EndLoad(true, done.pages);
  });
}

void ServiceTierDriver::EndLoad(bool whole, int64_t pages) {
  const Loading load = *std::exchange(loading_, std::nullopt);
  for (const StoreSpace::Slot slot : load.pinned) world_.store->space.Unpin(slot);
  LoadOutcome outcome{.id = load.order.id, .pages = pages};
  const auto asked = static_cast<int64_t>(load.order.pages.size());
  if (whole && load.pages < asked) {
    const LoadOrder::Page& page = load.order.pages[static_cast<size_t>(load.pages)];
    outcome.bad.push_back({page.key, page.tier, /*damaged=*/false});  // It gave way meanwhile.
  }
  for (int64_t i = 0; world_.contents && i < outcome.pages; ++i) {
    const LoadOrder::Page& page = load.order.pages[static_cast<size_t>(i)];
    const SimPageMap& from = page.tier == Tier::kPeer ? load.copied : In(page.tier);
    world_.device.WritePage(page.block, from.at(page.key));
  }
  if (whole) from_peers_ += load.bytes[At(Tier::kPeer)];
  for (size_t tier = 0; whole && tier < load.bytes.size(); ++tier) {
    if (load.bytes[tier].value > 0) rates_[tier].Add(load.bytes[tier], load.took[tier]);
  }
  loader_->LoadEnded(outcome);
  StartLoad();
  CarrySoon();
}

// Not at once: Carry itself gives loads up.
void ServiceTierDriver::CarrySoon() {
  world_.schedule.In(Seconds(0), [this] { world_.moved(); });
}

// ---- Saves: those that were asked for together move together.

std::vector<SimFlows::Link> ServiceTierDriver::PathOf(const TierAction& action) const {
  std::vector<SimFlows::Link> path;
  if (action.from == Tier::kDevice) path.push_back(from_device_);
  if (action.from == Tier::kDisk) path.push_back(disk_out_);
  if (action.to == Tier::kDisk) path.push_back(disk_in_);
  if (action.to == Tier::kRemote) path.insert(path.end(), {net_out_, world_.store->in});
  return path;
}

void ServiceTierDriver::Save(std::vector<TierAction> actions) {
  std::map<uint64_t, StoreSpace::Slot> placed;  // By copy
  Bytes bytes;
  for (const TierAction& action : actions) {
    if (action.to != Tier::kRemote) {
      bytes += page_;
      continue;
    }
    StoreSpace& space = world_.store->space;
    space.Touch(action.page.parent);
    const StoreSpace::Placing place = space.Place(action.page.key, page_);
    if (place.status != StoreStatus::kOk) continue;
    placed[action.id] = place.object.slot;
    bytes += page_;
  }
  std::vector<SimFlows::Link> path = PathOf(actions.front());
  world_.flows.Start(bytes, std::move(path),
                     [this, actions = std::move(actions), placed = std::move(placed)] {
                       EndSave(actions, placed);
                     });
}

// The device's page is read at the end: what was not kept in place until then would show.
bool ServiceTierDriver::Keep(const TierAction& action,
                             const std::map<uint64_t, StoreSpace::Slot>& placed) {
  const BlockKey& key = action.page.key;
  if (action.to == Tier::kRemote) {
    const auto slot = placed.find(action.id);
    if (slot == placed.end()) return world_.store->space.Has(key);  // Another worker's, or no room
    world_.store->space.Publish(slot->second, action.page.parent);
  }
  if (!world_.contents) return true;
  const bool device = action.from == Tier::kDevice;
  In(action.to)[key] = device ? world_.device.ReadPage(action.block) : In(action.from).at(key);
  return true;
}

void ServiceTierDriver::EndSave(const std::vector<TierAction>& actions,
                                const std::map<uint64_t, StoreSpace::Slot>& placed) {
  for (const TierAction& action : actions) {
    const bool kept = Keep(action, placed);
    loader_->SaveEnded(action.id, kept, world_.schedule.now());
  }
  if (world_.store) world_.store->TellNews();
  world_.moved();
}

}  // namespace divisi
