#include "divisi/sim/sim_service.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numeric>

#include "divisi/core/check.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

constexpr NodeId kGateway{1};
constexpr uint64_t kFirstWorker = 2;
constexpr Seconds kTick{0.02};
// Beyond it a run that does not end is a fault.
constexpr Seconds kLongest{100'000};

class Service {
 public:
  explicit Service(const ServiceScenario& scenario)
      : scenario_(scenario), dispatcher_(kGateway, scenario.dispatch) {
    report_.outcomes.resize(scenario.requests.size());
    for (const ServiceWorker& worker : scenario.workers) Start(worker);
    for (size_t i = 0; i < scenario.requests.size(); ++i) {
      At(scenario.requests[i].arrival, [this, i] { Submit(i); });
    }
    At(Seconds(0), [this] { Tick(); });
    At(Seconds(0), [this] { Report(); });
  }

  ServiceReport Run() {
    while (ended_ < scenario_.requests.size() && now_ < kLongest) {
      auto first = events_.begin();
      now_ = Seconds(first->first.first);
      const std::function<void()> event = std::move(first->second);
      events_.erase(first);
      event();
      Settle();
    }
    if (now_ >= kLongest) report_.fault = "it does not end";
    report_.dispatcher = dispatcher_.stats();
    for (const auto& node : nodes_) {
      if (!node->executor.first_fault().empty()) report_.fault = node->executor.first_fault();
      report_.workers.push_back(node->worker.stats());
    }
    return std::move(report_);
  }

 private:
  struct Node {
    Node(NodeId self, const ServiceWorker& from)
        : id(self),
          worker(self, from.scheduler, {}, Bytes(int64_t(SimExecutor::PageBytes()))),
          executor({.blocks = from.scheduler.blocks, .rates = from.rates}) {}
    NodeId id;
    Worker worker;
    SimExecutor executor;
    bool stepping = false;
    Seconds link_free;  // When the last page is through
  };

  void Start(const ServiceWorker& from) {
    const NodeId id{kFirstWorker + nodes_.size()};
    nodes_.push_back(std::make_unique<Node>(id, from));
    dispatcher_.AddWorker(id, from.role,
                          {.max_sequences = from.scheduler.max_sequences,
                           .step_tokens = from.scheduler.max_batched_tokens,
                           .page = Bytes(int64_t(SimExecutor::PageBytes()))});
  }

  void At(Seconds time, std::function<void()> event) {
    events_.emplace(std::pair{time.value, ++last_event_}, std::move(event));
  }
  Node& Find(NodeId id) { return *nodes_.at(id.value - kFirstWorker); }

  void Submit(size_t index) {
    const ServiceRequest& asked = scenario_.requests[index];
    Request request{.max_tokens = asked.output};
    for (int64_t i = 0; i < asked.prompt; ++i) {
      // No two prompts begin alike.
      request.prompt.push_back(static_cast<TokenId>(i == 0 ? 1000 + index : 1 + i % 900));
    }
    const auto number = dispatcher_.Submit(std::move(request), now_);
    if (number) {
      index_of_[*number] = index;
    } else {
      report_.outcomes[index].error = number.error();
      ++ended_;
    }
    report_.most_live = std::max(report_.most_live, dispatcher_.live());
  }

  void Take(const DispatchEvent& event) {
    ServiceOutcome& outcome = report_.outcomes[index_of_.at(event.request)];
    if (outcome.tokens == 0 && !event.tokens.empty()) outcome.first_token = now_;
    outcome.tokens += static_cast<int64_t>(event.tokens.size());
    if (!event.finish) return;
    outcome.finished = now_;
    outcome.error = event.error;
    ++ended_;
  }

  void Tick() {
    dispatcher_.Tick(now_);
    for (const auto& node : nodes_) node->worker.Tick(now_);
    At(now_ + kTick, [this] { Tick(); });
  }

  void Report() {
    for (const auto& node : nodes_) {
      const WorkerStats stats = node->worker.stats();
      dispatcher_.Report(node->id, stats.rates, stats.scheduler.prompt_backlog, now_);
    }
    At(now_ + scenario_.report, [this] { Report(); });
  }

  void Carry(NodeId from, Outgoing message) {
    At(now_ + scenario_.message, [this, from, message = std::move(message)] {
      if (message.to == kGateway) return dispatcher_.Receive(from, message.message, now_);
      Find(message.to).worker.Receive(from, message.message, now_);
    });
  }

  void Write(Node& node, const PageWrite& write) {
    node.link_free = std::max(node.link_free, now_) + scenario_.page;
    At(node.link_free, [this, &node, write] {
      Find(write.to).executor.WritePage(write.to_page, node.executor.ReadPage(write.from_page));
      node.worker.WriteDone(write.id, true, now_);
    });
  }

  void Step(Node& node) {
    if (node.stepping || !node.worker.HasWork()) return;
    const StepPlan& plan = node.worker.Plan(now_);
    if (plan.slices.empty()) return;
    node.stepping = true;
    const Seconds before = node.executor.busy();
    std::vector<SliceResult> results = node.executor.Execute(plan);
    At(now_ + (node.executor.busy() - before), [this, &node, results = std::move(results)] {
      node.stepping = false;
      node.worker.Commit(results, now_);
    });
  }

  void Settle() {
    for (Outgoing& message : dispatcher_.TakeMessages()) Carry(kGateway, std::move(message));
    for (const DispatchEvent& event : dispatcher_.TakeEvents()) Take(event);
    for (const auto& node : nodes_) {
      Step(*node);
      for (Outgoing& message : node->worker.TakeMessages()) Carry(node->id, std::move(message));
      for (const PageWrite& write : node->worker.TakeWrites()) Write(*node, write);
    }
  }

  const ServiceScenario& scenario_;
  Dispatcher dispatcher_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<std::pair<double, uint64_t>, std::function<void()>> events_;
  uint64_t last_event_ = 0;
  Seconds now_;
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

ServiceReport RunService(const ServiceScenario& scenario) { return Service(scenario).Run(); }

}  // namespace divisi
