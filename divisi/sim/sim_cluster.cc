#include "divisi/sim/sim_cluster.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "divisi/core/format.h"
#include "divisi/core/random.h"
#include "divisi/sim/sim_clients.h"
#include "divisi/sim/sim_directory.h"
#include "divisi/sim/sim_gateway.h"
#include "divisi/sim/sim_links.h"
#include "divisi/sim/sim_pages.h"
#include "divisi/sim/sim_weather.h"
#include "divisi/sim/sim_worker.h"

namespace divisi {
namespace {

// Gateways have smaller numbers than workers.
constexpr uint64_t kFirstWorker = 1000;

class Cluster {
 public:
  explicit Cluster(uint64_t seed)
      : random_(seed),
        links_(schedule_, random_, weather_, MakeListener()),
        pages_(schedule_, random_, weather_,
               [this](NodeId life) {
                 Process* process = Find(life);
                 return process == nullptr ? nullptr : &process->worker;
               }),
        clients_(schedule_, [this](size_t slot) { return gateways_[slot].get(); }),
        directory_(schedule_, random_, [this](const std::function<void(SimGateway&)>& tell) {
          for (const auto& gateway : gateways_) {
            if (gateway) tell(*gateway);
          }
        }) {
    weather_ = SimWeather::Draw(random_);
    gateways_.resize(static_cast<size_t>(random_.Chance(0.6) ? 1 : random_.Between(2, 3)));
    has_directory_ = random_.Chance(0.5);
    for (size_t slot = 0; slot < gateways_.size(); ++slot) StartGateway(slot);
    DrawWorkers();
    clients_.Draw(random_, gateways_.size());
    DrawFaults();
    schedule_.At(Seconds(0), [this] { TickAll(); });
  }

  SimClusterReport Run() {
    while (report_.fault.empty() && schedule_.now() <= kEnd && schedule_.Step()) Settle();
    CheckEnd();
    const SimClients::Counters& clients = clients_.counters();
    report_.finished = clients.finished;
    report_.failed = clients.failed;
    report_.failed_mid_stream = clients.failed_mid_stream;
    report_.refused = clients.refused;
    report_.cancelled = clients.cancelled;
    report_.late_writes = pages_.late_writes();
    report_.dropped = links_.counters().dropped;
    report_.repeated = links_.counters().repeated;
    report_.declared_dead = directory_.deaths();
    return std::move(report_);
  }

 private:
  // Faults stop at a third of this; then everything has to end.
  static constexpr Seconds kFaultsEnd{20};
  static constexpr Seconds kEnd{60};

  struct Process {
    SimWorker worker;
    bool up = true;
    Seconds leave_at;
  };
  // ---- Drawing

  void StartGateway(size_t slot) {
    RegistryOptions registry;
    if (has_directory_) registry.lease = SimDirectory::kLease;
    gateways_[slot] = std::make_unique<SimGateway>(NodeId{++last_gateway_},
                                                   DrawSimDispatcher(random_), std::move(registry));
    if (has_directory_) directory_.Tell(*gateways_[slot]);
  }

  void DrawWorkers() {
    const bool replicas = random_.Chance(0.3);
    const bool apart = !replicas || random_.Chance(0.4);
    std::vector<GatewayAddress> addresses;
    for (size_t slot = 0; slot < gateways_.size(); ++slot) {
      addresses.push_back({"gateway", static_cast<int>(slot)});
    }
    const auto add = [&](WorkerRole role, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        Process& process = *processes_.emplace_back(std::make_unique<Process>(
            Process{.worker = SimWorker(role, DrawSimScheduler(random_), addresses)}));
        BeginLife(process);
      }
    };
    if (replicas) add(WorkerRole::kReplica, random_.Between(1, 3));
    if (!apart) return;
    add(WorkerRole::kPrefill, random_.Between(1, 3));
    add(WorkerRole::kDecode, random_.Between(1, 3));
  }

  void DrawFaults() {
    const auto scatter = [this](int count, double until, void (Cluster::*event)()) {
      for (int i = 0; i < count; ++i) {
        schedule_.At(kFaultsEnd * (until * random_.Uniform()), [this, event] { (this->*event)(); });
      }
    };
    scatter(weather_.crashes, 1, &Cluster::Crash);
    scatter(weather_.partitions, 0.7, &Cluster::Partition);
    scatter(weather_.drains, 0.8, &Cluster::Drain);
    scatter(weather_.leaves, 0.8, &Cluster::Leave);
    scatter(weather_.role_changes, 1, &Cluster::ChangeRole);
    scatter(weather_.directory_outages, 0.6, &Cluster::LoseDirectory);
    scatter(weather_.lost_gateways, 1, &Cluster::LoseGateway);
    schedule_.At(kFaultsEnd, [this] { weather_.drop = weather_.repeat = 0; });
  }

  // ---- Who is there

  size_t AnyOf(size_t count) {
    return static_cast<size_t>(random_.Between(0, static_cast<int64_t>(count) - 1));
  }
  size_t AnyProcess() { return AnyOf(processes_.size()); }

  // The process whose life `id` is; null: it has ended.
  Process* Find(NodeId id) {
    const auto found = process_of_.find(id);
    return found == process_of_.end() ? nullptr : processes_[found->second].get();
  }
  size_t IndexOf(const Process& process) const {
    return static_cast<size_t>(
        std::ranges::find_if(processes_, [&](const auto& each) { return each.get() == &process; }) -
        processes_.begin());
  }

  void BeginLife(Process& process) {
    process.up = true;
    process.worker.BeNew(NodeId{++last_node_});
    process_of_[process.worker.id()] = IndexOf(process);
  }

  // A life ends: nobody is told but by its connections.
  void EndLife(Process& process) {
    NoteLife(process.worker);
    process_of_.erase(process.worker.id());
    links_.WorkerGone(IndexOf(process));
  }

  // ---- Connections

  SimLinks::Listener MakeListener() {
    return {.connected =
                [this](const SimLinks::End& end) {
                  if (processes_[end.worker]->up) {
                    processes_[end.worker]->worker.Connected(end.at_worker);
                  }
                },
            .refused =
                [this](const SimLinks::End& end) {
                  processes_[end.worker]->worker.membership().Ended(end.at_worker, "refused",
                                                                    schedule_.now());
                },
            .ended = [this](const SimLinks::End& end, bool at_worker) { Ended(end, at_worker); },
            .frame = [this](const SimLinks::End& end, bool to_worker,
                            ClusterMessage message) { Frame(end, to_worker, std::move(message)); }};
  }

  void Ended(const SimLinks::End& end, bool at_worker) {
    if (at_worker) {
      processes_[end.worker]->worker.membership().Ended(end.at_worker, "lost", schedule_.now());
    } else if (gateways_[end.slot]) {
      gateways_[end.slot]->Ended(end.at_gateway, schedule_.now());
    }
  }

  void Frame(const SimLinks::End& end, bool to_worker, ClusterMessage message) {
    Digest(end.at_gateway * 31 + message.index());
    if (to_worker) {
      Process& process = *processes_[end.worker];
      if (process.up) {
        process.worker.Frame(end.at_worker, std::move(message), schedule_.now());
      }
    } else if (gateways_[end.slot]) {
      gateways_[end.slot]->Frame(end.at_gateway, std::move(message), schedule_.now());
    }
  }

  void Dial(size_t index) {
    Process& process = *processes_[index];
    for (const Membership::Dial& dial : process.worker.membership().TakeDials(schedule_.now())) {
      const auto slot = static_cast<size_t>(dial.address.port);
      links_.Dial(index, slot, dial.link, [this, index, slot, life = process.worker.id()] {
        const Process& caller = *processes_[index];
        return caller.up && caller.worker.id() == life && gateways_[slot] != nullptr;
      });
    }
  }

  // ---- Faults

  void Crash() {
    Process& process = *processes_[AnyProcess()];
    if (!process.up) return;
    ++report_.crashes;
    Kill(process);
  }

  // The process is gone; another one starts in its place later.
  void Kill(Process& process) {
    EndLife(process);
    process.up = false;
    schedule_.In(Seconds(0.5 + 2 * random_.Uniform()), [this, &process] { BeginLife(process); });
  }

  void Partition() {
    ++report_.partitions;
    const Seconds length(6 * random_.Uniform());
    const size_t a = AnyProcess();
    if (random_.Chance(0.6)) return links_.Part(a, AnyOf(gateways_.size()), length);
    const size_t b = AnyProcess();
    if (a == b) return;
    pages_.Part(processes_[a]->worker, processes_[b]->worker, length);
  }

  // The connections of its clients are gone; the next life of it knows nothing of them.
  void LoseGateway() {
    const size_t slot = AnyOf(gateways_.size());
    if (!gateways_[slot]) return;
    ++report_.gateway_lost;
    directory_.GatewayGone(gateways_[slot]->id());
    gateways_[slot].reset();
    clients_.GatewayLost(slot);
    links_.GatewayGone(slot);
    schedule_.In(Seconds(0.2 + 4 * random_.Uniform() * random_.Uniform()),
                 [this, slot] { StartGateway(slot); });
  }

  void LoseDirectory() {
    if (!has_directory_ || !directory_.up()) return;
    ++report_.directory_outages;
    directory_.Down();
    schedule_.In(Seconds(8 * random_.Uniform()), [this] { directory_.Up(); });
  }

  // ---- Operators

  SimGateway* AnyGateway() { return gateways_[AnyOf(gateways_.size())].get(); }

  // A member of `gateway`, if it has any.
  std::optional<NodeId> AnyMember(const SimGateway& gateway) {
    const auto& members = gateway.registry().members();
    if (members.empty()) return std::nullopt;
    auto at = members.begin();
    std::advance(at, AnyOf(members.size()));
    return at->second.away ? std::nullopt : std::optional(at->first);
  }

  // One gateway sends a worker nothing for a while, and what it has there ends in bounded time.
  void Drain() {
    SimGateway* gateway = AnyGateway();
    const auto node = gateway != nullptr ? AnyMember(*gateway) : std::nullopt;
    if (!node) return;
    ++report_.drains;
    gateway->dispatcher().Drain(*node, schedule_.now(),
                                Seconds(2 * random_.Uniform() * random_.Uniform()));
    schedule_.In(Seconds(4 * random_.Uniform()), [this, node, of = gateway->id()] {
      for (const auto& gateway : gateways_) {
        if (!gateway || gateway->id() != of) continue;
        const auto member = gateway->registry().members().find(*node);
        if (member == gateway->registry().members().end() || member->second.away) continue;
        gateway->dispatcher().AddWorker(*node, member->second.hello.role);
      }
    });
  }

  void ChangeRole() {
    SimGateway* gateway = AnyGateway();
    const auto node = gateway != nullptr ? AnyMember(*gateway) : std::nullopt;
    if (!node) return;
    ++report_.role_changes;
    const auto role = static_cast<WorkerRole>(random_.Between(0, 2));
    gateway->registry().SetRole(*node, role);
    gateway->dispatcher().AddWorker(*node, role);
  }

  // A worker is told to end: it lets what it has go on for a while.
  void Leave() {
    Process& process = *processes_[AnyProcess()];
    if (!process.up || process.worker.leaving()) return;
    ++report_.leaves;
    const Seconds drain(3 * random_.Uniform());
    process.leave_at = schedule_.now() + drain;
    process.worker.Leave(drain);
  }

  void LeaveWhenDone(Process& process) {
    if (!process.worker.leaving()) return;
    if (schedule_.now() < process.leave_at && !process.worker.Idle()) return;
    process.worker.LeaveNow();
    Flush(process);
    if (has_directory_) directory_.Left(process.worker.id());
    Kill(process);
    process.worker.Stay();
  }

  // ---- Driving

  void TickAll() {
    const Seconds now = schedule_.now();
    if (has_directory_) directory_.Tick();
    for (const auto& gateway : gateways_) {
      if (gateway) gateway->Tick(now);
    }
    for (size_t index = 0; index < processes_.size(); ++index) {
      Process& process = *processes_[index];
      if (!process.up) continue;
      if (process.worker.rejected()) BeNew(process);
      Dial(index);
      process.worker.Tick(now);
      if (has_directory_) directory_.Renew(process.worker.id());
      if (random_.Chance(0.2)) process.worker.Report();
      LeaveWhenDone(process);
    }
    schedule_.In(Seconds(0.02 + 0.02 * random_.Uniform()), [this] { TickAll(); });
  }

  // A healthy worker was taken for dead, and has learnt of it.
  void BeNew(Process& process) {
    ++report_.false_alarms;
    EndLife(process);
    BeginLife(process);
  }

  // Carries out what the last event asked for.
  void Settle() {
    for (size_t slot = 0; slot < gateways_.size(); ++slot) {
      if (gateways_[slot]) SettleGateway(slot);
    }
    for (const auto& process : processes_) {
      if (!process->up) continue;
      StartStep(process->worker);
      process->worker.Settle();
      for (const PageWrite& write : process->worker.worker().TakeWrites()) {
        pages_.Write(process->worker.id(), write);
      }
      Flush(*process);
    }
    if (++settled_ % 16 != 0) return;
    for (const auto& gateway : gateways_) {
      if (gateway) gateway->dispatcher().Verify();
    }
    for (const auto& process : processes_) {
      if (process->up) process->worker.worker().Verify();
    }
  }

  void SettleGateway(size_t slot) {
    SimGateway& gateway = *gateways_[slot];
    gateway.Settle(schedule_.now());
    for (SimFrame& frame : gateway.TakeFrames()) {
      links_.SendToWorker(frame.link, std::move(frame.message));
    }
    for (const LinkId link : gateway.TakeCloses()) links_.CloseAtGateway(link);
    for (const VouchAction& vouch : gateway.TakeVouches()) directory_.Vouch(gateway.id(), vouch);
    for (const NodeId node : gateway.TakeBurials()) directory_.Bury(node);
    for (const DispatchEvent& event : gateway.dispatcher().TakeEvents()) {
      if (std::string wrong = clients_.Take(slot, event); !wrong.empty()) Fault(std::move(wrong));
    }
  }

  void Flush(Process& process) {
    const size_t index = IndexOf(process);
    for (SimFrame& frame : process.worker.TakeFrames()) {
      links_.SendToGateway(index, frame.link, std::move(frame.message));
    }
  }

  void StartStep(SimWorker& worker) {
    if (worker.stepping || !worker.worker().HasWork()) return;
    const StepPlan& plan = worker.worker().Plan(schedule_.now());
    if (plan.slices.empty()) return;
    worker.stepping = true;
    std::vector<SliceResult> results = worker.executor().Execute(plan);
    schedule_.In(Seconds(0.002 + 0.0002 * static_cast<double>(plan.tokens)),
                 [this, id = worker.id(), results = std::move(results)] {
                   Process* process = Find(id);
                   if (process == nullptr) return;
                   process->worker.stepping = false;
                   process->worker.worker().Commit(results, schedule_.now());
                 });
  }

  // ---- Checking

  void Fault(std::string what) {
    if (!report_.fault.empty()) return;
    report_.fault = Format("at {:.3f} s: {}", schedule_.now().value, what);
  }
  void Digest(uint64_t value) {
    report_.digest = (report_.digest ^ value) * 0x100000001b3ull + schedule_.events();
  }
  void NoteLife(const SimWorker& worker) {
    const WorkerStats stats = worker.worker().stats();
    report_.expired_leases += stats.counters.expired_leases;
    report_.handovers += stats.counters.handovers;
    worker.worker().Verify();  // Its transfers add up, too.
    const std::string& fault = worker.executor().first_fault();
    if (!fault.empty()) Fault(Format("worker {}: {}", worker.id().value, fault));
  }

  void CheckEnd() {
    for (const auto& process : processes_) {
      const SimWorker& worker = process->worker;
      NoteLife(worker);
      const WorkerStats stats = worker.worker().stats();
      if (stats.incoming != 0 || stats.outgoing != 0 || stats.scheduler.blocks_used != 0) {
        Fault(Format(
            "{} {} has {} incoming ({} stopping), {} outgoing requests and {} pages at the end",
            RoleName(worker.role()), worker.id().value, stats.incoming, stats.stopping,
            stats.outgoing, stats.scheduler.blocks_used));
      }
    }
    if (std::string wrong = clients_.CheckEnd(); !wrong.empty()) Fault(std::move(wrong));
    for (const auto& gateway : gateways_) CheckEndOf(*gateway);
  }

  void CheckEndOf(const SimGateway& gateway) {
    const Dispatcher& dispatcher = gateway.dispatcher();
    for (const WorkerLoad& load : dispatcher.loads(schedule_.now())) {
      if (load.requests != 0) {
        Fault(Format("worker {} has a load of {}", load.node.value, load.requests));
      }
    }
    for (const int64_t count : dispatcher.stats().retried) report_.retries += count;
    if (dispatcher.live() != 0 || dispatcher.waiting() != 0) Fault("the dispatcher is not empty");
    for (const auto& process : processes_) {
      if (!gateway.registry().LinkOf(process->worker.id())) {
        Fault(Format("worker {} and gateway {} have not found each other",
                     process->worker.id().value, gateway.id().value));
      }
    }
  }

  SimSchedule schedule_;
  Random random_;
  SimWeather weather_;
  SimLinks links_;
  SimPages pages_;
  SimClients clients_;
  bool has_directory_ = false;
  SimDirectory directory_;
  std::vector<std::unique_ptr<SimGateway>> gateways_;  // By address; none: it is to come back
  std::vector<std::unique_ptr<Process>> processes_;
  std::map<NodeId, size_t> process_of_;  // By life
  uint64_t last_gateway_ = 0;
  uint64_t last_node_ = kFirstWorker;
  uint64_t settled_ = 0;
  SimClusterReport report_;
};

}  // namespace

SimClusterReport RunSimCluster(uint64_t seed) { return Cluster(seed).Run(); }

}  // namespace divisi
