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
#include "divisi/sim/sim_client.h"
#include "divisi/sim/sim_executor.h"
#include "divisi/sim/sim_weather.h"

namespace divisi {
namespace {

// Gateways have smaller numbers than workers.
constexpr uint64_t kFirstWorker = 1000;

class Cluster {
 public:
  explicit Cluster(uint64_t seed) : random_(seed) {
    DrawGateways();
    weather_ = SimWeather::Draw(random_);
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
  // After this a gateway that does not hear a worker acts.
  static constexpr Seconds kSilent{1};

  struct Node {
    NodeId id;
    WorkerRole role = WorkerRole::kReplica;
    SchedulerOptions options;
    std::unique_ptr<Worker> worker;
    std::unique_ptr<SimExecutor> executor;
    bool stepping = false;
    std::set<NodeId> fenced;  // Whose writes no longer land here
  };
  struct Gateway {
    NodeId id;
    std::unique_ptr<Dispatcher> dispatcher;
    bool up = true;
    std::map<uint64_t, size_t> client_of;  // By request
  };
  struct Client {
    SimClient asked;
    size_t gateway = 0;
    std::optional<uint64_t> number;  // Once submitted
  };

  // ---- Drawing

  void DrawGateways() {
    const int64_t count = random_.Chance(0.6) ? 1 : random_.Between(2, 3);
    for (int64_t i = 0; i < count; ++i) gateways_.push_back(NewGateway());
  }

  Gateway NewGateway() {
    const NodeId id{++last_gateway_};
    return {id, std::make_unique<Dispatcher>(id, DrawSimDispatcher(random_))};
  }

  void DrawWorkers() {
    const bool replicas = random_.Chance(0.3);
    const bool apart = !replicas || random_.Chance(0.4);
    const auto add = [&](WorkerRole role, int64_t count) {
      for (int64_t i = 0; i < count; ++i) StartNode(role, DrawSimScheduler(random_));
    };
    if (replicas) add(WorkerRole::kReplica, random_.Between(1, 3));
    if (!apart) return;
    add(WorkerRole::kPrefill, random_.Between(1, 3));
    add(WorkerRole::kDecode, random_.Between(1, 3));
  }

  void StartNode(WorkerRole role, SchedulerOptions options) {
    const NodeId id{++last_node_};
    Node& node = nodes_[id];
    node.id = id;
    node.role = role;
    node.options = options;
    node.worker = std::make_unique<Worker>(id, options, SimTimes(), SimCapacity(options).page);
    node.executor = std::make_unique<SimExecutor>(
        SimExecutorOptions{.blocks = options.blocks, .vocab = kSimVocab});
    for (Gateway& gateway : gateways_) Introduce(gateway, node);
  }

  static void Introduce(Gateway& gateway, const Node& node) {
    gateway.dispatcher->AddWorker(node.id, node.role, SimCapacity(node.options));
  }

  void DrawClients() {
    const int64_t count = random_.Between(1, 40);
    for (int64_t i = 0; i < count; ++i) {
      const auto index = static_cast<size_t>(i);
      const Client& client = clients_.emplace_back(Client{SimClient::Draw(random_), AnySlot()});
      At(client.asked.arrives(), [this, index] { Submit(index); });
      if (client.asked.cancels()) At(*client.asked.cancels(), [this, index] { Cancel(index); });
    }
  }

  void DrawFaults() {
    const auto scatter = [this](int count, double until, void (Cluster::*event)()) {
      for (int i = 0; i < count; ++i) {
        At(kFaultsEnd * (until * random_.Uniform()), [this, event] { (this->*event)(); });
      }
    };
    scatter(weather_.crashes, 1, &Cluster::Crash);
    scatter(weather_.partitions, 0.8, &Cluster::Partition);
    scatter(weather_.drains, 0.8, &Cluster::Drain);
    scatter(weather_.role_changes, 1, &Cluster::ChangeRole);
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

  Gateway* FindGateway(NodeId id) {
    for (Gateway& gateway : gateways_) {
      if (gateway.id == id) return &gateway;
    }
    return nullptr;
  }

  // Workers speak to each other through a gateway: the transfer's, or any that reaches both.
  bool Reaches(NodeId from, NodeId to) const {
    const auto joins = [&](const Gateway& via) {
      const bool hop =
          from == via.id || to == via.id || (!Parted(from, via.id) && !Parted(via.id, to));
      return via.up && hop;
    };
    const bool direct = from.value < kFirstWorker || to.value < kFirstWorker;
    return direct ? !Parted(from, to) : std::ranges::any_of(gateways_, joins);
  }

  void Carry(NodeId from, Outgoing message) {
    if (random_.Chance(weather_.drop) || !Reaches(from, message.to)) {
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
    if (!Reaches(from, message.to)) return;
    Digest(from.value * 31 + message.message.index());
    if (Gateway* gateway = FindGateway(message.to)) {
      if (gateway->up && !dead_.contains(from)) {
        gateway->dispatcher->Receive(from, message.message, now_);
      }
      return;
    }
    Node* node = Find(message.to);
    if (node == nullptr || node->fenced.contains(from)) return;
    if (const Gateway* gateway = FindGateway(from); gateway != nullptr && !gateway->up) return;
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

  size_t AnySlot() {
    return static_cast<size_t>(random_.Between(0, static_cast<int64_t>(gateways_.size()) - 1));
  }
  Gateway& AnyGateway() { return gateways_[AnySlot()]; }
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
    NoteLife(found->second);
    const WorkerRole role = found->second.role;
    const SchedulerOptions options = found->second.options;
    nodes_.erase(found);
    At(now_ + Seconds(0.5 * random_.Uniform()), [this, id] { Announce(id); });
    At(now_ + Seconds(0.5 + 2 * random_.Uniform()),
       [this, role, options] { StartNode(role, options); });
  }

  // Membership has confirmed a death: nothing of that life counts any more.
  void Announce(NodeId id) {
    dead_.insert(id);
    for (Gateway& gateway : gateways_) {
      if (gateway.up) gateway.dispatcher->RemoveWorker(id, now_);
    }
    for (auto& [other, node] : nodes_) {
      node.fenced.insert(id);
      node.worker->PeerGone(id, now_);
    }
  }

  void Partition() {
    if (nodes_.empty()) return;
    ++report_.partitions;
    const NodeId a = AnyNode();
    Gateway& gateway = AnyGateway();
    const NodeId b = random_.Chance(0.5) ? gateway.id : AnyNode();
    if (a == b) return;
    const std::pair<NodeId, NodeId> pair = std::minmax(a, b);
    parted_.insert(pair);
    const Seconds length(3 * random_.Uniform());
    At(now_ + length, [this, pair] { parted_.erase(pair); });
    if (b != gateway.id || length < kSilent) return;
    At(now_ + kSilent, [this, a, b, length] { Missed(a, b, length - kSilent); });
  }

  // A gateway has not heard of a healthy worker for long. Alone, or mistaken, it takes the worker
  // for dead, which learns of it. Where the others still hear it, it is out of this one's reach:
  // its requests there are tried elsewhere, and it comes back as what it was.
  void Missed(NodeId worker, NodeId by, Seconds rest) {
    Gateway* gateway = FindGateway(by);
    if (Find(worker) == nullptr || gateway == nullptr || !gateway->up) return;
    if (gateways_.size() == 1 || random_.Chance(0.2)) {
      ++report_.false_alarms;
      return Kill(worker);
    }
    ++report_.unreachable;
    gateway->dispatcher->RemoveWorker(worker, now_);
    At(now_ + rest, [this, worker, by] {
      const Node* node = Find(worker);
      Gateway* back = FindGateway(by);
      if (node != nullptr && back != nullptr) Introduce(*back, *node);
    });
  }

  // The connections of its clients are gone; the next life of it knows nothing of them.
  void LoseGateway() {
    const size_t slot = AnySlot();
    if (!gateways_[slot].up) return;
    ++report_.gateway_lost;
    gateways_[slot].up = false;
    for (Client& client : clients_) {
      if (client.gateway == slot && client.number) client.asked.End();
    }
    At(now_ + Seconds(0.2 + 4 * random_.Uniform() * random_.Uniform()), [this, slot] {
      gateways_[slot] = NewGateway();
      for (const auto& [id, node] : nodes_) Introduce(gateways_[slot], node);
    });
  }

  // ---- Operators

  // One gateway sends a worker nothing for a while, and what it has there ends in bounded time.
  void Drain() {
    if (nodes_.empty()) return;
    ++report_.drains;
    const NodeId id = AnyNode();
    Gateway& gateway = AnyGateway();
    gateway.dispatcher->Drain(id, now_, Seconds(2 * random_.Uniform() * random_.Uniform()));
    At(now_ + Seconds(4 * random_.Uniform()), [this, id, of = gateway.id] {
      Gateway* back = FindGateway(of);
      if (Find(id) != nullptr && back != nullptr) Introduce(*back, *Find(id));
    });
  }

  void ChangeRole() {
    if (nodes_.empty()) return;
    ++report_.role_changes;
    Node& node = nodes_.at(AnyNode());
    node.role = static_cast<WorkerRole>(random_.Between(0, 2));
    for (Gateway& gateway : gateways_) Introduce(gateway, node);
  }

  // ---- Clients

  void Submit(size_t index) {
    Client& client = clients_[index];
    Gateway& gateway = gateways_[client.gateway];
    if (!gateway.up || client.asked.ended()) return;
    const auto number = gateway.dispatcher->Submit(client.asked.request(), now_);
    if (!number) {
      ++report_.refused;
      return client.asked.End();
    }
    client.number = *number;
    gateway.client_of[*number] = index;
  }

  void Cancel(size_t index) {
    Client& client = clients_[index];
    Gateway& gateway = gateways_[client.gateway];
    if (!client.number || client.asked.ended() || !gateway.up) return;
    ++report_.cancelled;
    client.asked.End();
    gateway.dispatcher->Cancel(*client.number, now_);
  }

  void Take(const Gateway& gateway, const DispatchEvent& event) {
    SimClient& client = clients_[gateway.client_of.at(event.request)].asked;
    if (std::string wrong = client.Take(event); !wrong.empty()) return Fault(std::move(wrong));
    if (!event.finish) return;
    const bool failed = event.finish == FinishReason::kError;
    report_.finished += !failed;
    report_.failed += failed;
    report_.failed_mid_stream += failed && client.got_tokens();
  }

  // ---- Driving

  void TickAll() {
    for (Gateway& gateway : gateways_) {
      if (gateway.up) gateway.dispatcher->Tick(now_);
    }
    for (auto& [id, node] : nodes_) {
      node.worker->Tick(now_);
      if (!random_.Chance(0.2)) continue;
      const WorkerStats stats = node.worker->stats();
      for (Gateway& gateway : gateways_) {
        if (Parted(id, gateway.id)) continue;
        gateway.dispatcher->Report(id, stats.rates, stats.scheduler.prompt_backlog, now_);
      }
    }
    At(now_ + Seconds(0.02 + 0.02 * random_.Uniform()), [this] { TickAll(); });
  }

  // Carries out what the last event asked for.
  void Settle() {
    for (Gateway& gateway : gateways_) {
      std::vector<Outgoing> messages = gateway.dispatcher->TakeMessages();
      const std::vector<DispatchEvent> events = gateway.dispatcher->TakeEvents();
      if (!gateway.up) continue;
      for (Outgoing& message : messages) Carry(gateway.id, std::move(message));
      for (const DispatchEvent& event : events) Take(gateway, event);
    }
    for (auto& [id, node] : nodes_) {
      StartStep(node);
      for (Outgoing& message : node.worker->TakeMessages()) Carry(id, std::move(message));
      for (const PageWrite& write : node.worker->TakeWrites()) Write(id, write);
    }
    if (++settled_ % 16 != 0) return;
    for (const Gateway& gateway : gateways_) gateway.dispatcher->Verify();
    for (auto& [id, node] : nodes_) node.worker->Verify();
  }

  void StartStep(Node& node) {
    if (node.stepping || !node.worker->HasWork()) return;
    const StepPlan& plan = node.worker->Plan(now_);
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
  void NoteLife(const Node& node) {
    const WorkerStats stats = node.worker->stats();
    report_.expired_leases += stats.counters.expired_leases;
    report_.handovers += stats.counters.handovers;
    const std::string& fault = node.executor->first_fault();
    if (!fault.empty()) Fault(Format("worker {}: {}", node.id.value, fault));
  }

  void CheckEnd() {
    for (const auto& [id, node] : nodes_) {
      NoteLife(node);
      const WorkerStats stats = node.worker->stats();
      if (stats.incoming != 0 || stats.outgoing != 0 || stats.scheduler.blocks_used != 0) {
        Fault(Format(
            "{} {} has {} incoming ({} stopping), {} outgoing requests and {} pages at the end",
            RoleName(node.role), id.value, stats.incoming, stats.stopping, stats.outgoing,
            stats.scheduler.blocks_used));
      }
    }
    for (const Gateway& gateway : gateways_) {
      if (gateway.up) CheckEndOf(gateway);
    }
  }

  void CheckEndOf(const Gateway& gateway) {
    for (const auto& [number, index] : gateway.client_of) {
      if (!clients_[index].asked.ended()) Fault(Format("request {} never ends", number));
    }
    for (const WorkerLoad& load : gateway.dispatcher->loads(now_)) {
      if (load.requests != 0) {
        Fault(Format("worker {} has a load of {}", load.node.value, load.requests));
      }
    }
    for (const int64_t count : gateway.dispatcher->stats().retried) report_.retries += count;
    if (gateway.dispatcher->live() != 0 || gateway.dispatcher->waiting() != 0) {
      Fault("the dispatcher is not empty");
    }
  }

  Random random_;
  std::vector<Gateway> gateways_;
  SimWeather weather_;
  Seconds now_;
  uint64_t last_event_ = 0;
  uint64_t last_gateway_ = 0;
  uint64_t last_node_ = kFirstWorker;
  uint64_t settled_ = 0;
  std::map<std::pair<double, uint64_t>, std::function<void()>> events_;
  std::map<NodeId, Node> nodes_;
  std::set<NodeId> dead_;
  std::set<std::pair<NodeId, NodeId>> parted_;
  std::vector<Client> clients_;
  SimClusterReport report_;
};

}  // namespace

SimClusterReport RunSimCluster(uint64_t seed) { return Cluster(seed).Run(); }

}  // namespace divisi
