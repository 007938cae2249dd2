#include "divisi/sim/sim_worker.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "divisi/core/format.h"
#include "divisi/sim/sim_client.h"
#include "divisi/sim/sim_events.h"
#include "divisi/sim/sim_gateway.h"
#include "divisi/sim/sim_links.h"
#include "divisi/sim/sim_pages.h"

namespace divisi {

SimWorker::SimWorker(size_t index, WorkerCoreOptions options, const SimWorld& world)
    : index_(index), options_(std::move(options)), world_(world) {}

constexpr size_t kNewsAtATime = 16;

template <typename Fn>
void SimWorker::Later(Seconds wait, Fn fn) {
  world_.schedule.In(wait, [this, of = life(), fn = std::move(fn)] {
    if (up_ && life() == of) fn();
  });
}

// ---- Lives

void SimWorker::Start(NodeId life) {
  up_ = true;
  core_.emplace(options_, world_.schedule.now());
  if (world_.directory != nullptr) {
    client_ = world_.directory->Join("gateway/",
                                     [this](const DirectoryEvent& event) { core_->Told(event); });
  }
  BeNew(life);
}

void SimWorker::BeNew(NodeId life) {
  const PrefixLoaderOptions tiers =
      world_.pool != nullptr ? DrawSimTiers(world_.random) : PrefixLoaderOptions();
  executor_ = std::make_unique<SimExecutor>(SimExecutorOptions{
      .blocks = options_.scheduler.blocks, .vocab = kSimVocab, .layers = tiers.layers});
  following_steps_ = 0;
  peers_.clear();
  barred_.clear();
  EventEndpoints events;
  if (world_.events != nullptr) {
    events.live = "sim";
    world_.events->Begin(life, index_);
  }
  if (world_.pool == nullptr) return core_->BeNew(life, {.address = "sim"}, {}, events);
  tiers_ = std::make_unique<SimTiers>(world_, tiers, *executor_, disk_);
  const std::string address = Format("10.0.0.{}:{}", index_, life.value);
  if (world_.random.Chance(0.8)) tiers_->Export(address);
  core_->BeNew(life, {.address = "sim", .exported_at = tiers_->exports() ? address : ""},
               tiers_->options(), events);
  tiers_->Restore(*core_->prefixes());
}

void SimWorker::Leave() {
  up_ = false;
  if (tiers_) tiers_->Withdraw();
  if (world_.directory != nullptr) world_.directory->Leave(client_);
}

void SimWorker::Crash() {
  up_ = false;
  if (tiers_) tiers_->Withdraw();
  if (world_.directory != nullptr) world_.directory->Lost(client_);
}

std::string SimWorker::Left() const {
  const WorkerStats stats = core_->worker().stats();
  const PrefixLoaderStats loads = stats.prefixes.value_or(PrefixLoaderStats{});
  const TierStats& tiers = loads.tiers;
  const std::pair<const char*, int64_t> counts[] = {{"incoming requests", stats.incoming},
                                                    {"outgoing requests", stats.outgoing},
                                                    {"pages", stats.scheduler.blocks_used},
                                                    {"pages of loads", loads.loading_pages},
                                                    {"questions", loads.asking},
                                                    {"copies", tiers.moves},
                                                    {"awaited pages", tiers.awaited_pages},
                                                    {"pinned pages in memory", tiers.host_pinned},
                                                    {"pinned pages on disk", tiers.disk_pinned},
                                                    {"pages to be saved", tiers.saves_waiting},
                                                    {"pages for the pool", tiers.pool_waiting}};
  std::string left;
  for (const auto& [name, count] : counts) {
    if (count != 0) left += Format("{}{} {}", left.empty() ? "" : ", ", count, name);
  }
  return left;
}

// ---- What the core asks for

void SimWorker::CarryTiers() {
  if (!tiers_) return;
  tiers_->Carry(*core_->prefixes(), [this](Seconds wait, std::function<void()> fn) {
    Later(wait, [this, fn = std::move(fn)] {
      fn();
      Settle();
    });
  });
}

void SimWorker::Settle() {
  CarryTiers();
  StartStep();
  // Some at a time, as a publisher has room.
  if (world_.events != nullptr) world_.events->Publish(life(), core_->TakeNews(kNewsAtATime));
  for (WorkerAction& action : core_->TakeActions()) {
    std::visit([this](auto& each) { Do(each); }, action);
  }
}

void SimWorker::StartStep() {
  const StepPlan* plan = core_->BeginStep(world_.schedule.now());
  if (plan == nullptr) return;
  const Seconds time(0.002 + 0.0002 * static_cast<double>(plan->tokens));
  const bool follows = std::ranges::any_of(
      plan->slices, [](const StepSlice& slice) { return slice.gate != nullptr; });
  if (follows) {
    ++following_steps_;
    const bool patient = !world_.random.Chance(0.05);
    return Later(time, [this, plan, patient] { EndStep(*plan, patient); });
  }
  std::vector<SliceResult> results = executor_->Execute(*plan);
  Later(time,
        [this, results = std::move(results)] { core_->EndStep(results, world_.schedule.now()); });
}

// Its pages are read when their last layers are there; who is not patient has waited too long then.
void SimWorker::EndStep(const StepPlan& plan, bool patient) {
  if (patient && !executor_->GatesAreDecided(plan)) {
    return Later(Seconds(0.001), [this, &plan] { EndStep(plan, true); });
  }
  core_->EndStep(executor_->Execute(plan), world_.schedule.now());
}

void SimWorker::Do(const DialAction& dial) {
  world_.links.Dial(index_, life(), SimSlot(dial.address), dial.link);
}

void SimWorker::Do(SendAction& action) {
  world_.links.SendToGateway(index_, action.link, std::move(action.message));
}

// A fence takes a while; until then the peer's writes land.
void SimWorker::Do(const BarAction& action) {
  peers_.erase(action.node);
  const Seconds fence(world_.random.Uniform() * world_.random.Uniform());
  Later(fence, [this, peer = action.node] {
    barred_.insert(peer);
    core_->Barred(peer, world_.schedule.now());
  });
}

void SimWorker::Do(const PageWrite& write) { world_.pages.Write(life(), write); }

void SimWorker::Do(const DirectoryAction& action) {
  if (world_.directory != nullptr) world_.directory->Do(client_, action);
}

}  // namespace divisi
