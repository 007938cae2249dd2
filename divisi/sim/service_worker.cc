#include "divisi/sim/service_worker.h"

#include <utility>
#include <variant>

#include "divisi/core/format.h"

namespace divisi {
namespace {

Bytes PageOf(const ServiceWorker& from) {
  if (from.device) return from.device->model.State(Tokens(kBlockTokens));
  return Bytes(static_cast<int64_t>(SimExecutor::PageBytes()));
}

WorkerCoreOptions CoreOptions(const ServiceWorker& from, const ServiceNode::World& world,
                              NodeId self) {
  WorkerCoreOptions options{.role = from.role,
                            .name = Format("{}-{}", RoleName(from.role), self.value),
                            .gateways = {{"gateway", 1}},
                            .scheduler = from.scheduler,
                            .page = PageOf(from),
                            .times = world.times};
  options.scheduler.report_pages = from.tiers.has_value();
  return options;
}

SimExecutorOptions ExecutorOptions(const ServiceWorker& from, const ServiceNode::World& world) {
  SimExecutorOptions options{
      .blocks = from.scheduler.blocks, .rates = from.rates, .contents = world.contents};
  if (from.device) {
    options.time = [device = *from.device](const StepPlan& plan) { return StepTime(device, plan); };
  }
  return options;
}

}  // namespace

ServiceNode::ServiceNode(NodeId self, const ServiceWorker& from, const World& world, Others others)
    : world_(world),
      others_(std::move(others)),
      executor_(ExecutorOptions(from, world)),
      core_(CoreOptions(from, world, self), world.schedule.now()) {
  if (!from.tiers) {
    core_.BeNew(self, {.address = "sim"});
    return;
  }
  tiers_ =
      std::make_unique<ServiceTierDriver>(*from.tiers, PageOf(from),
                                          ServiceTierDriver::World{.schedule = world.schedule,
                                                                   .flows = world.flows,
                                                                   .store = world.store,
                                                                   .device = executor_,
                                                                   .contents = world.contents,
                                                                   .moved = [this] { Settle(); }});
  core_.BeNew(self, {.address = "sim"}, tiers_->Options(from.scheduler.blocks));
}

void ServiceNode::Receive(ClusterMessage message) {
  core_.Receive(link_, std::move(message), world_.schedule.now());
  Settle();
}

void ServiceNode::Tick() {
  core_.Tick(world_.schedule.now());
  Settle();
}

void ServiceNode::Settle() {
  if (tiers_) tiers_->Carry(*core_.prefixes(), core_.worker().PromptToken());
  StartStep();
  for (auto actions = core_.TakeActions(); !actions.empty(); actions = core_.TakeActions()) {
    for (WorkerAction& action : actions) {
      std::visit([this](auto& each) { Do(each); }, action);
    }
  }
}

void ServiceNode::Do(const DialAction& dial) {
  link_ = dial.link;
  core_.Connected(link_, false);
}

void ServiceNode::StartStep() {
  const StepPlan* plan = core_.BeginStep(world_.schedule.now());
  if (plan == nullptr) return;
  const Seconds before = executor_.busy();
  std::vector<SliceResult> results = executor_.Execute(*plan);
  world_.schedule.In(executor_.busy() - before, [this, results = std::move(results)] {
    core_.EndStep(results, world_.schedule.now());
    Settle();
  });
}

}  // namespace divisi
