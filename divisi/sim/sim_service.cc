#include "divisi/sim/sim_service.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <variant>

#include "divisi/control/gateway_core.h"
#include "divisi/control/route_prefix.h"
#include "divisi/core/check.h"

namespace divisi {
namespace {

constexpr NodeId kGateway{1};
constexpr uint64_t kFirstWorker = 2;
constexpr Seconds kTick{0.02};
// Beyond it a run that does not end is a fault.
constexpr Seconds kLongest{100'000};
constexpr size_t kProgressParts = 200;

GatewayCoreOptions CoreOptions(const ServiceScenario& scenario) {
  GatewayCoreOptions options{.dispatch = scenario.dispatch};
  if (scenario.directory == 0) return options;
  auto pages = PageDirectory::Create({.pages = scenario.directory});
  CHECK(pages.ok(), "{}", pages.error().message);
  options.pages = *std::move(pages);
  return options;
}

class Service {
 public:
  explicit Service(const ServiceScenario& scenario)
      : scenario_(scenario), gateway_(kGateway, CoreOptions(scenario)) {
    report_.outcomes.resize(scenario.requests.size());
    if (scenario.pool) store_.emplace(*scenario.pool, flows_);
    if (store_ && scenario.directory > 0) {
      store_->news = [this](std::vector<KvEvent> news) { HearPool(std::move(news)); };
    }
    for (const ServiceWorker& worker : scenario.workers) Start(worker);
    Join();
    AwaitNext();
    schedule_.At(kTick, [this] { Tick(); });
  }

  ServiceReport Run() {
    while (ended_ < scenario_.requests.size() && schedule_.now() < kLongest && schedule_.Step()) {
    }
    if (ended_ < scenario_.requests.size()) report_.fault = "it does not end";
    report_.dispatcher = gateway_.dispatcher().stats();
    if (store_) report_.from_pool = flows_.Carried(store_->out);
    for (const auto& node : nodes_) {
      if (!node->executor().first_fault().empty()) report_.fault = node->executor().first_fault();
      report_.workers.push_back(node->core().worker().stats());
      if (scenario_.directory > 0) report_.odds.push_back(OddsOf(node->self()));
      if (!node->tiers()) continue;
      report_.tiers.push_back(node->core().prefixes()->stats());
      report_.from_peers += node->tiers()->from_peers();
    }
    return std::move(report_);
  }

 private:
  std::array<double, kSources> OddsOf(NodeId worker) {
    std::array<double, kSources> odds{};
    for (size_t t = 0; t < kSources; ++t) {
      odds[t] = gateway_.pages()->Odds(worker, static_cast<Tier>(t));
    }
    return odds;
  }

  ServiceNode& Find(NodeId id) { return *nodes_.at(id.value - kFirstWorker); }

  void Start(const ServiceWorker& from) {
    const NodeId id{kFirstWorker + nodes_.size()};
    const ServiceNode::World world{.schedule = schedule_,
                                   .flows = flows_,
                                   .store = store_ ? &*store_ : nullptr,
                                   .peers = scenario_.peers ? &peers_ : nullptr,
                                   .times = scenario_.dispatch.times,
                                   .contents = scenario_.contents};
    ServiceNode::Others others{
        .to_gateway = [this, id](ClusterMessage message) { ToGateway(id, std::move(message)); },
        .write = [this, id](const PageWrite& write) { Write(Find(id), write); }};
    if (scenario_.directory > 0) {
      others.news = [this, id](std::vector<KvEvent> news) { Hear(id, std::move(news)); };
    }
    nodes_.push_back(std::make_unique<ServiceNode>(id, from, world, std::move(others)));
  }

  // Everybody is there before the load begins: messages take no time until then.
  void Join() {
    for (const auto& node : nodes_) node->Tick();
    while (schedule_.now() == Seconds(0) && !joined_) {
      joined_ = gateway_.dispatcher().loads(Seconds(0)).size() == nodes_.size();
      if (!joined_ && !schedule_.Step()) break;
    }
    CHECK(joined_, "workers did not join");
  }

  Seconds Delay() const { return joined_ ? scenario_.message : Seconds(0); }

  // A worker's connection has its number.
  void ToGateway(NodeId from, ClusterMessage message) {
    schedule_.In(Delay(), [this, from, message = std::move(message)]() mutable {
      gateway_.Receive(from.value, std::move(message), schedule_.now());
      Settle();
    });
  }

  void ToWorker(SendAction& action) {
    schedule_.In(Delay(),
                 [this, to = NodeId{action.link}, message = std::move(action.message)]() mutable {
                   Find(to).Receive(std::move(message));
                 });
  }

  void Hear(NodeId from, std::vector<KvEvent> news) {
    schedule_.In(scenario_.event, [this, from, news = std::move(news)]() mutable {
      gateway_.Heard(from, {.events = std::move(news)}, schedule_.now());
    });
  }

  void HearPool(std::vector<KvEvent> news) {
    schedule_.In(scenario_.event, [this, news = std::move(news)]() mutable {
      gateway_.HeardStore(0, {.events = std::move(news)}, schedule_.now());
    });
  }

  void Write(ServiceNode& node, const PageWrite& write) {
    node.link_free = std::max(node.link_free, schedule_.now()) + scenario_.page;
    schedule_.At(node.link_free, [this, &node, write] {
      if (scenario_.contents) {
        Find(write.to).executor().WritePage(write.to_page,
                                            node.executor().ReadPage(write.from_page));
      }
      node.core().WriteDone(write.id, true, schedule_.now());
      node.Settle();
    });
  }

  // One request's arrival at a time lies in the schedule.
  void AwaitNext() {
    if (next_ == scenario_.requests.size()) return;
    schedule_.At(scenario_.requests[next_].arrival, [this] { Submit(next_); });
  }

  void Submit(size_t index) {
    const ServiceRequest& asked = scenario_.requests[index];
    Request request{.prompt = PromptOf(asked, index), .max_tokens = asked.output};
    std::vector<BlockKey> keys;
    if (const auto space = gateway_.PageSpace()) keys = SharedPromptKeys(*space, request);
    const auto number = gateway_.Submit(std::move(request), schedule_.now(), std::move(keys));
    if (number) {
      index_of_[*number] = index;
    } else {
      report_.outcomes[index].error = number.error();
      End();
    }
    report_.most_live = std::max(report_.most_live, gateway_.dispatcher().live());
    Settle();
    ++next_;
    AwaitNext();
  }

  void Take(const DispatchEvent& event) {
    ServiceOutcome& outcome = report_.outcomes[index_of_.at(event.request)];
    if (outcome.tokens == 0 && !event.tokens.empty()) outcome.first_token = schedule_.now();
    outcome.tokens += static_cast<int64_t>(event.tokens.size());
    outcome.cached_tokens = std::max(outcome.cached_tokens, event.cached_tokens);
    for (const SampledToken& token : event.tokens) {
      if (scenario_.contents) outcome.sampled.push_back(token.token);
    }
    if (!event.finish) return;
    outcome.finished = schedule_.now();
    outcome.error = event.error;
    End();
  }

  void End() {
    ++ended_;
    const size_t all = scenario_.requests.size();
    const size_t part = std::max<size_t>(all / kProgressParts, 1);
    if (scenario_.progress && ended_ % part == 0) {
      scenario_.progress(static_cast<double>(ended_) / static_cast<double>(all));
    }
  }

  void Tick() {
    gateway_.Tick(schedule_.now());
    Settle();
    for (const auto& node : nodes_) node->Tick();
    schedule_.In(kTick, [this] { Tick(); });
  }

  // What the gateway asks for.
  void Settle() {
    for (GatewayAction& action : gateway_.TakeActions()) {
      if (auto* send = std::get_if<SendAction>(&action)) ToWorker(*send);
    }
    for (RouteNote& note : gateway_.TakeChoices()) {
      report_.outcomes[index_of_.at(note.request)].choice = std::move(note.choice);
    }
    for (const DispatchEvent& event : gateway_.TakeEvents()) Take(event);
  }

  const ServiceScenario& scenario_;
  SimSchedule schedule_;
  SimFlows flows_{schedule_};
  std::optional<ServiceStore> store_;
  ServicePeers peers_;
  GatewayCore gateway_;
  std::vector<std::unique_ptr<ServiceNode>> nodes_;
  bool joined_ = false;
  size_t next_ = 0;  // Request to arrive
  std::map<uint64_t, size_t> index_of_;
  size_t ended_ = 0;
  ServiceReport report_;
};

std::vector<Seconds> Ttfts(const ServiceReport& report, const ServiceScenario& scenario) {
  std::vector<Seconds> times;
  for (size_t i = 0; i < report.outcomes.size(); ++i) {
    const ServiceOutcome& outcome = report.outcomes[i];
    if (outcome.tokens > 0) times.push_back(outcome.first_token - scenario.requests[i].arrival);
  }
  CHECK(!times.empty(), "no request got a token");
  return times;
}

}  // namespace

NodeId ServiceWorkerId(size_t index) { return NodeId{kFirstWorker + index}; }

Seconds ServiceReport::MeanTtft(const ServiceScenario& scenario) const {
  const std::vector<Seconds> times = Ttfts(*this, scenario);
  return std::accumulate(times.begin(), times.end(), Seconds(0)) /
         static_cast<double>(times.size());
}

Seconds ServiceReport::TtftQuantile(const ServiceScenario& scenario, double q) const {
  std::vector<Seconds> times = Ttfts(*this, scenario);
  std::ranges::sort(times);
  const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(times.size())));
  return times[std::max<size_t>(rank, 1) - 1];
}

int64_t ServiceReport::PromptTokensComputed() const {
  int64_t tokens = 0;
  for (const WorkerStats& worker : workers) tokens += worker.counters.prefill_tokens;
  return tokens;
}

double ServiceReport::HitRate() const {
  int64_t asked = 0, found = 0;
  for (const WorkerStats& worker : workers) {
    asked += worker.counters.queried_tokens;
    found += worker.counters.cached_tokens;
  }
  return asked > 0 ? static_cast<double>(found) / static_cast<double>(asked) : 0;
}

ServiceReport RunService(const ServiceScenario& scenario) { return Service(scenario).Run(); }

}  // namespace divisi
