#include "divisi/sim/sim_cluster.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "divisi/control/dispatcher.h"
#include "divisi/control/worker.h"
#include "divisi/core/format.h"
#include "divisi/core/random.h"
#include "divisi/sim/sim_executor.h"

namespace divisi {
namespace {

constexpr NodeId kGateway{1};
constexpr int64_t kVocab = 50;

HandoffTimes ShortTimes() {
  return {.lease = Seconds(1),
          .renew = Seconds(0.2),
          .resend = Seconds(0.1),
          .reserve = Seconds(0.5),
          .prefill = Seconds(3),
          .taken = Seconds(1),
          .token = Seconds(2),
          .total = Seconds(10),
          .backoff = Seconds(0.02),
          .most_backoff = Seconds(0.3)};
}

// How bad the world is in this run.
struct Weather {
  double drop = 0, repeat = 0;
  Seconds delay{0.001};        // Mean
  Seconds write_delay{0.002};  // Mean
  int crashes = 0, partitions = 0;
  bool lose_gateway = false;
};

class Cluster {
 public:
  explicit Cluster(uint64_t seed) : random_(seed), dispatcher_(kGateway, DrawDispatcher()) {
    DrawWeather();
    DrawWorkers();
    DrawClients();
    DrawFaults();
    At(Seconds(0), [this] { TickAll(); });
  }

  SimClusterReport Run() {
    while (!events_.empty() && report_.fault.empty()) {
      auto first = events_.begin();
      now_ = Seconds(first->first.first);
      const std::function<void()> event = std::move(first->second);
      events_.erase(first);
      event();
      Settle();
      if (now_ > kEnd) break;
    }
    CheckEnd();
    return std::move(report_);
  }

 private:
  // Faults stop at half of this; then everything has to end.
  static constexpr Seconds kFaultsEnd{20};
  static constexpr Seconds kEnd{60};

  struct Node {
    NodeId id;
    WorkerRole role = WorkerRole::kReplica;
    SchedulerOptions options;
    std::unique_ptr<Worker> worker;
    std::unique_ptr<SimExecutor> executor;
    bool stepping = false;
    std::set<NodeId> fenced;  // Whose writes no longer land here
  };
  struct Client {
    Request request;
    std::vector<TokenId> expected;
    FinishReason reason = FinishReason::kLength;
    uint64_t number = 0;
    bool submitted = false, cancelled = false, ended = false;
    std::vector<TokenId> got;
  };

  // ---- Drawing

  DispatcherOptions DrawDispatcher() {
    return {.times = ShortTimes(),
            .max_waiting = random_.Between(2, 40),
            .disaggregate_from = random_.Chance(0.3) ? random_.Between(0, 40) : 0};
  }

  void DrawWeather() {
    if (random_.Chance(0.3)) return;  // A fine day.
    weather_.drop = random_.Chance(0.5) ? 0.1 * random_.Uniform() : 0;
    weather_.repeat = random_.Chance(0.5) ? 0.1 * random_.Uniform() : 0;
    weather_.delay = Seconds(0.05 * random_.Uniform() * random_.Uniform());
    weather_.write_delay = Seconds(0.1 * random_.Uniform() * random_.Uniform());
    weather_.crashes = static_cast<int>(random_.Between(0, 3));
    weather_.partitions = static_cast<int>(random_.Between(0, 3));
    weather_.lose_gateway = random_.Chance(0.05);
  }

  void DrawWorkers() {
    const bool replicas = random_.Chance(0.3);
    const bool apart = !replicas || random_.Chance(0.4);
    const auto add = [&](WorkerRole role, int64_t count) {
      for (int64_t i = 0; i < count; ++i) StartNode(role, DrawOptions());
    };
    if (replicas) add(WorkerRole::kReplica, random_.Between(1, 3));
    if (!apart) return;
    add(WorkerRole::kPrefill, random_.Between(1, 3));
    add(WorkerRole::kDecode, random_.Between(1, 3));
  }

  SchedulerOptions DrawOptions() {
    return {.max_sequences = random_.Between(1, 8),
            .max_batched_tokens = random_.Between(8, 64),
            .max_model_len = 120,
            .max_waiting = random_.Between(1, 20),
            .blocks = random_.Between(8, 40),
            .share_prefixes = random_.Chance(0.8)};
  }

  void StartNode(WorkerRole role, SchedulerOptions options) {
    const NodeId id{++last_node_};
    Node& node = nodes_[id];
    node.id = id;
    node.role = role;
    node.options = options;
    node.worker = std::make_unique<Worker>(id, options, ShortTimes());
    node.executor = std::make_unique<SimExecutor>(
        SimExecutorOptions{.blocks = options.blocks, .vocab = kVocab});
    dispatcher_.AddWorker(id, role);
  }

  void DrawClients() {
    const int64_t count = random_.Between(1, 40);
    for (int64_t i = 0; i < count; ++i) {
      Client& client = clients_.emplace_back();
      const int64_t length = random_.Between(1, random_.Chance(0.5) ? 20 : 80);
      const int64_t common = random_.Chance(0.5) ? random_.Between(0, length) : 0;
      for (int64_t t = 0; t < length; ++t) {
        client.request.prompt.push_back(
            static_cast<TokenId>(t < common ? t : random_.Between(0, 10000)));
      }
      client.request.max_tokens = random_.Chance(0.15) ? 1 : random_.Between(1, 40);
      client.request.sampling.seed = static_cast<uint64_t>(random_.Between(0, 3));
      if (random_.Chance(0.3)) {
        client.request.stop_token_ids = {static_cast<TokenId>(random_.Between(0, kVocab - 1))};
      }
      RunAlone(client);
      const Seconds arrives(15 * random_.Uniform() * (random_.Chance(0.5) ? 0.1 : 1));
      const auto index = static_cast<size_t>(i);
      At(arrives, [this, index] { Submit(index); });
      if (random_.Chance(0.25)) {
        At(arrives + Seconds(3 * random_.Uniform() * random_.Uniform()),
           [this, index] { Cancel(index); });
      }
    }
  }

  static void RunAlone(Client& client) {
    Scheduler scheduler({.max_model_len = 120, .blocks = 8});
    SimExecutor executor({.blocks = 8, .vocab = kVocab});
    Request request = client.request;
    request.id = 1;
    CHECK(scheduler.Add(request).ok());
    while (scheduler.HasWork()) {
      for (SchedulerEvent& event : scheduler.Commit(executor.Execute(scheduler.Plan()))) {
        if (event.kind == SchedulerEvent::Kind::kToken) {
          client.expected.push_back(event.token.token);
        }
        if (event.kind == SchedulerEvent::Kind::kFinished) client.reason = event.reason;
      }
    }
  }

  void DrawFaults() {
    for (int i = 0; i < weather_.crashes; ++i) {
      At(kFaultsEnd * random_.Uniform(), [this] { Crash(); });
    }
    for (int i = 0; i < weather_.partitions; ++i) {
      At(kFaultsEnd * (0.8 * random_.Uniform()), [this] { Partition(); });
    }
    if (weather_.lose_gateway) At(kFaultsEnd * random_.Uniform(), [this] { LoseGateway(); });
    At(kFaultsEnd, [this] { weather_.drop = weather_.repeat = 0; });
  }

  // ---- Time and links

  void At(Seconds time, std::function<void()> event) {
    events_.emplace(std::pair{std::max(time, now_).value, ++last_event_}, std::move(event));
  }

  Node* Find(NodeId id) {
    const auto found = nodes_.find(id);
    return found == nodes_.end() ? nullptr : &found->second;
  }

  bool Parted(NodeId a, NodeId b) const { return parted_.contains(std::minmax(a, b)); }

  Seconds Delay(Seconds mean) { return Seconds(random_.Exponential(mean.value)); }

  void Carry(NodeId from, Outgoing message) {
    if (random_.Chance(weather_.drop) || Parted(from, message.to)) {
      ++report_.dropped;
      return;
    }
    const int copies = random_.Chance(weather_.repeat) ? 2 : 1;
    report_.repeated += copies - 1;
    for (int i = 0; i < copies; ++i) {
      At(now_ + Delay(weather_.delay), [this, from, message] { Deliver(from, message); });
    }
  }

  void Deliver(NodeId from, const Outgoing& message) {
    if (Parted(from, message.to)) return;
    Digest(from.value * 31 + message.message.index());
    if (message.to == kGateway) {
      if (gateway_up_ && !dead_.contains(from)) dispatcher_.Receive(from, message.message, now_);
      return;
    }
    Node* node = Find(message.to);
    if (node == nullptr || node->fenced.contains(from)) return;
    if (from == kGateway && !gateway_up_) return;
    node->worker->Receive(from, message.message, now_);
  }

  // The page is read when it lands, as a card that reads memory late would.
  void Write(NodeId from, PageWrite write) {
    At(now_ + Delay(weather_.write_delay), [this, from, write] { Land(from, write); });
  }

  void Land(NodeId from, const PageWrite& write) {
    Node* source = Find(from);
    Node* target = Find(write.to);
    if (source == nullptr) {  // A write that was on its way when its worker died.
      ++report_.late_writes;
      if (target != nullptr && !target->fenced.contains(from)) Garble(*target, write.to_page);
      return;
    }
    const bool ok = target != nullptr && !target->fenced.contains(from) && !Parted(from, write.to);
    if (ok) target->executor->WritePage(write.to_page, source->executor->ReadPage(write.from_page));
    const Seconds answer = ok ? Delay(weather_.delay) : Seconds(0.3);
    At(now_ + answer, [this, from, write, ok] {
      if (Node* node = Find(from)) node->worker->WriteDone(write.id, ok, now_);
    });
  }

  static void Garble(Node& target, BlockId page) {
    const std::vector<std::byte> junk(SimExecutor::PageBytes(), std::byte{0x5a});
    target.executor->WritePage(page, junk);
  }

  // ---- Faults

  NodeId AnyNode() {
    auto at = nodes_.begin();
    std::advance(at, random_.Between(0, static_cast<int64_t>(nodes_.size()) - 1));
    return at->first;
  }

  void Crash() {
    if (nodes_.empty()) return;
    ++report_.crashes;
    Kill(AnyNode());
  }

  // The process is gone now; the others learn of it later, and a new life of it starts after that.
  void Kill(NodeId id) {
    const auto found = nodes_.find(id);
    if (found == nodes_.end()) return;
    NoteFaults(found->second);
    const WorkerRole role = found->second.role;
    const SchedulerOptions options = found->second.options;
    report_.expired_leases += found->second.worker->stats().expired_leases;
    report_.handovers += found->second.worker->stats().handovers;
    nodes_.erase(found);
    At(now_ + Seconds(0.5 * random_.Uniform()), [this, id] { Announce(id); });
    At(now_ + Seconds(0.5 + 2 * random_.Uniform()),
       [this, role, options] { StartNode(role, options); });
  }

  // Membership has confirmed a death: nothing of that life counts any more.
  void Announce(NodeId id) {
    dead_.insert(id);
    if (gateway_up_) dispatcher_.RemoveWorker(id, now_);
    for (auto& [other, node] : nodes_) {
      node.fenced.insert(id);
      node.worker->PeerGone(id, now_);
    }
  }

  void Partition() {
    if (nodes_.empty()) return;
    ++report_.partitions;
    const NodeId a = AnyNode();
    const NodeId b = random_.Chance(0.5) ? kGateway : AnyNode();
    if (a == b) return;
    const std::pair<NodeId, NodeId> pair = std::minmax(a, b);
    parted_.insert(pair);
    const Seconds length(3 * random_.Uniform());
    At(now_ + length, [this, pair] { parted_.erase(pair); });
    // Cut off from the gateway for long, a healthy worker is taken for dead, and learns it.
    if (b != kGateway || length < Seconds(1)) return;
    At(now_ + Seconds(1), [this, a] {
      if (Find(a) == nullptr) return;
      ++report_.false_alarms;
      Kill(a);
    });
  }

  void LoseGateway() {
    ++report_.gateway_lost;
    gateway_up_ = false;
    for (Client& client : clients_) client.ended = true;  // Their connections are gone.
  }

  // ---- Clients

  void Submit(size_t index) {
    Client& client = clients_[index];
    if (!gateway_up_ || client.ended) return;
    auto number = dispatcher_.Submit(client.request, now_);
    if (!number) {
      ++report_.refused;
      client.ended = true;
      return;
    }
    client.submitted = true;
    client.number = *number;
    by_number_[*number] = index;
  }

  void Cancel(size_t index) {
    Client& client = clients_[index];
    if (!client.submitted || client.ended || !gateway_up_) return;
    ++report_.cancelled;
    client.cancelled = client.ended = true;
    dispatcher_.Cancel(client.number, now_);
  }

  void Take(const DispatchEvent& event) {
    Client& client = clients_[by_number_.at(event.request)];
    if (client.ended) return Fault(Format("request {} goes on after its end", event.request));
    for (const SampledToken& token : event.tokens) client.got.push_back(token.token);
    const bool begins = client.got.size() <= client.expected.size() &&
                        std::equal(client.got.begin(), client.got.end(), client.expected.begin());
    if (!begins) return Fault(Format("request {} has other tokens than alone", event.request));
    if (!event.finish) return;
    client.ended = true;
    if (event.finish == FinishReason::kError) {
      ++report_.failed;
      report_.failed_mid_stream += !client.got.empty();
      return;
    }
    ++report_.finished;
    if (client.got != client.expected || *event.finish != client.reason) {
      Fault(Format("request {} ends with {} of {} tokens", event.request, client.got.size(),
                   client.expected.size()));
    }
  }

  // ---- Driving

  void TickAll() {
    if (gateway_up_) dispatcher_.Tick(now_);
    for (auto& [id, node] : nodes_) node.worker->Tick(now_);
    At(now_ + Seconds(0.02 + 0.02 * random_.Uniform()), [this] { TickAll(); });
  }

  // Carries out what the last event asked for.
  void Settle() {
    for (Outgoing& message : dispatcher_.TakeMessages()) {
      if (gateway_up_) Carry(kGateway, std::move(message));
    }
    for (const DispatchEvent& event : dispatcher_.TakeEvents()) {
      if (gateway_up_) Take(event);
    }
    for (auto& [id, node] : nodes_) {
      StartStep(node);
      for (Outgoing& message : node.worker->TakeMessages()) Carry(id, std::move(message));
      for (const PageWrite& write : node.worker->TakeWrites()) Write(id, write);
    }
    if (++settled_ % 16 != 0) return;
    dispatcher_.Verify();
    for (auto& [id, node] : nodes_) node.worker->Verify();
  }

  void StartStep(Node& node) {
    if (node.stepping || !node.worker->HasWork()) return;
    const StepPlan& plan = node.worker->Plan();
    if (plan.slices.empty()) return;
    node.stepping = true;
    std::vector<SliceResult> results = node.executor->Execute(plan);
    const NodeId id = node.id;
    At(now_ + Seconds(0.002 + 0.0002 * static_cast<double>(plan.tokens)),
       [this, id, results = std::move(results)] {
         Node* stepped = Find(id);
         if (stepped == nullptr) return;
         stepped->stepping = false;
         stepped->worker->Commit(results, now_);
       });
  }

  // ---- Checking

  void Fault(std::string what) {
    if (report_.fault.empty()) report_.fault = Format("at {:.3f} s: {}", now_.value, what);
  }
  void Digest(uint64_t value) {
    report_.digest =
        (report_.digest ^ value) * 0x100000001b3ull + static_cast<uint64_t>(last_event_);
  }
  void NoteFaults(const Node& node) {
    if (!node.executor->first_fault().empty()) {
      Fault(Format("worker {}: {}", node.id.value, node.executor->first_fault()));
    }
  }

  void CheckEnd() {
    for (const auto& [id, node] : nodes_) {
      NoteFaults(node);
      const WorkerStats stats = node.worker->stats();
      report_.expired_leases += stats.expired_leases;
      report_.handovers += stats.handovers;
      if (stats.incoming != 0 || stats.outgoing != 0 || stats.scheduler.blocks_used != 0) {
        Fault(Format(
            "{} {} has {} incoming ({} stopping), {} outgoing requests and {} pages at the end",
            RoleName(node.role), id.value, stats.incoming, stats.stopping, stats.outgoing,
            stats.scheduler.blocks_used));
      }
    }
    if (!gateway_up_) return;
    for (const Client& client : clients_) {
      if (client.submitted && !client.ended) Fault(Format("request {} never ends", client.number));
    }
    for (const WorkerLoad& load : dispatcher_.loads()) {
      if (load.requests != 0)
        Fault(Format("worker {} has a load of {}", load.node.value, load.requests));
    }
    if (dispatcher_.live() != 0 || dispatcher_.waiting() != 0) Fault("the dispatcher is not empty");
  }

  Random random_;
  Dispatcher dispatcher_;
  Weather weather_;
  Seconds now_;
  uint64_t last_event_ = 0;
  uint64_t last_node_ = 10;
  uint64_t settled_ = 0;
  bool gateway_up_ = true;
  std::map<std::pair<double, uint64_t>, std::function<void()>> events_;
  std::map<NodeId, Node> nodes_;
  std::set<NodeId> dead_;
  std::set<std::pair<NodeId, NodeId>> parted_;
  std::vector<Client> clients_;
  std::map<uint64_t, size_t> by_number_;
  SimClusterReport report_;
};

}  // namespace

SimClusterReport RunSimCluster(uint64_t seed) { return Cluster(seed).Run(); }

}  // namespace divisi
