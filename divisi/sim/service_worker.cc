#include "divisi/sim/service_worker.h"

#include <utility>
#include <variant>

#include "divisi/core/format.h"

namespace divisi {
namespace {

// What the gateway names pages by.
const std::string kModel = "modelled";
const std::string kPageFormat = "modelled";
// Told at once; nothing is left for later.
constexpr size_t kMostNews = size_t{1} << 30;

Bytes PageOf(const ServiceWorker& from) {
  if (from.device) return from.device->model.State(Tokens(kBlockTokens));
  return Bytes(static_cast<int64_t>(SimExecutor::PageBytes()));
}

WorkerCoreOptions CoreOptions(const ServiceWorker& from, const ServiceNode::World& world,
                              NodeId self, bool tells) {
  WorkerCoreOptions options{.role = from.role,
                            .name = Format("{}-{}", RoleName(from.role), self.value),
                            .gateways = {{"gateway", 1}},
                            .compatibility = {.model = kModel, .page_format = kPageFormat},
                            .scheduler = from.scheduler,
                            .page = PageOf(from),
                            .tell_pages = tells,
                            .times = world.times};
  options.scheduler.model_fingerprint.assign(kModel.begin(), kModel.end());
  options.scheduler.page_format = kPageFormat;
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
      core_(CoreOptions(from, world, self, others_.news != nullptr), world.schedule.now()) {
  EventEndpoints events;
  if (others_.news) events.live = "sim";
  if (!from.tiers) {
    core_.BeNew(self, {.address = "sim"}, {}, events);
    return;
  }
  tiers_ =
      std::make_unique<ServiceTierDriver>(*from.tiers, PageOf(from),
                                          ServiceTierDriver::World{.schedule = world.schedule,
                                                                   .flows = world.flows,
                                                                   .store = world.store,
                                                                   .peers = world.peers,
                                                                   .device = executor_,
                                                                   .contents = world.contents,
                                                                   .moved = [this] { Settle(); }});
  PageMemory memory{.address = "sim"};
  if (world.peers != nullptr && from.tiers->host_pages > 0) {
    memory.exported_at = Format("{}:1", self.value);
    (*world.peers)[memory.exported_at] = tiers_.get();
  }
  core_.BeNew(self, std::move(memory), tiers_->Options(from.scheduler.blocks), events);
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
  TellNews();
  for (auto actions = core_.TakeActions(); !actions.empty(); actions = core_.TakeActions()) {
    for (WorkerAction& action : actions) {
      std::visit([this](auto& each) { Do(each); }, action);
    }
  }
}

void ServiceNode::TellNews() {
  if (!others_.news) return;
  std::vector<KvEvent> news = core_.TakeNews(kMostNews);
  if (!news.empty()) others_.news(std::move(news));
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
