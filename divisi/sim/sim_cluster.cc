#include "divisi/sim/sim_cluster.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "divisi/core/format.h"
#include "divisi/core/random.h"
#include "divisi/sim/sim_client.h"
#include "divisi/sim/sim_clients.h"
#include "divisi/sim/sim_directory.h"
#include "divisi/sim/sim_events.h"
#include "divisi/sim/sim_gateway.h"
#include "divisi/sim/sim_links.h"
#include "divisi/sim/sim_page_check.h"
#include "divisi/sim/sim_pages.h"
#include "divisi/sim/sim_weather.h"
#include "divisi/sim/sim_worker.h"

namespace divisi {
namespace {

// Gateways have smaller numbers than workers.
constexpr uint64_t kFirstWorker = 1000;
// More than all prompts and outputs of a run have.
constexpr int64_t kDirectoryPages = 1000;

class Cluster {
 public:
  explicit Cluster(uint64_t seed)
      : random_(seed),
        links_(schedule_, random_, weather_, MakeListener()),
        pages_(schedule_, random_, weather_, [this](NodeId life) { return Find(life); }),
        clients_(schedule_, [this](size_t slot) { return gateways_[slot].get(); }),
        directory_(schedule_, random_),
        events_(schedule_, random_, weather_, MakeEventListener()) {
    weather_ = SimWeather::Draw(random_);
    gateways_.resize(static_cast<size_t>(random_.Chance(0.6) ? 1 : random_.Between(2, 3)));
    has_directory_ = random_.Chance(0.5);
    has_tiers_ = random_.Chance(0.5);
    has_events_ = random_.Chance(0.7);
    alike_ = has_tiers_ && random_.Chance(0.6);
    if (has_tiers_ && has_events_) {
      pool_.events = &events_;
      events_.Begin(SimPool::kLife, SimEvents::kPool);
    }
    for (size_t slot = 0; slot < gateways_.size(); ++slot) StartGateway(slot);
    DrawWorkers();
    clients_.Draw(random_, gateways_.size(), alike_);
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
    report_.declared_dead = directory_.declared();
    report_.loads = pool_.loads;
    report_.failed_loads = pool_.failed_loads;
    report_.pool_pages = pool_.pages_read;
    report_.peer_pages = pool_.peer_pages;
    const SimEvents::Counters events = events_.counters();
    report_.event_gaps = events.gaps;
    report_.event_replays = events.replays;
    report_.event_snapshots = events.snapshots;
    report_.event_losses = events.losses;
    return std::move(report_);
  }

 private:
  // Faults stop at a third of this; then everything has to end.
  static constexpr Seconds kFaultsEnd{20};
  static constexpr Seconds kEnd{60};

  // ---- Drawing

  SimWorld World() {
    return {schedule_,
            random_,
            weather_,
            links_,
            pages_,
            has_directory_ ? &directory_ : nullptr,
            has_tiers_ ? &pool_ : nullptr,
            has_events_ ? &events_ : nullptr};
  }

  void StartGateway(size_t slot) {
    GatewayCoreOptions options{.dispatch = DrawSimDispatcher(random_)};
    options.registry.context = kSimMaxModelLen;
    if (has_directory_) options.registry.lease = SimDirectory::kLease;
    if (has_events_) options.pages = PageDirectory::Create({.pages = kDirectoryPages}).value();
    gateways_[slot] =
        std::make_unique<SimGateway>(NodeId{++last_gateway_}, slot, std::move(options), World());
    if (pool_.events != nullptr) events_.Follow(slot, SimPool::kLife);
  }

  void DrawWorkers() {
    const bool replicas = random_.Chance(0.3);
    const bool apart = !replicas || random_.Chance(0.4);
    // Told of the gateways, or finding them in the directory.
    const bool told = !has_directory_ || random_.Chance(0.5);
    std::vector<GatewayAddress> addresses;
    for (size_t slot = 0; told && slot < gateways_.size(); ++slot) {
      addresses.push_back(SimAddress(slot));
    }
    const auto add = [&](WorkerRole role, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        WorkerCoreOptions options =
            SimWorkerOptions(role, DrawSimScheduler(random_, alike_ ? 16 : 40));
        options.gateways = addresses;
        options.scheduler.report_pages = has_tiers_;
        options.tell_pages = has_events_;
        workers_.push_back(
            std::make_unique<SimWorker>(workers_.size(), std::move(options), World()));
        Start(*workers_.back());
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
    scatter(weather_.pool_losses, 1, &Cluster::LosePoolPages);
    scatter(weather_.pool_outages, 0.7, &Cluster::LosePool);
    schedule_.At(kFaultsEnd, [this] { weather_.drop = weather_.repeat = 0; });
  }

  // ---- Who is there

  size_t AnyOf(size_t count) {
    return static_cast<size_t>(random_.Between(0, static_cast<int64_t>(count) - 1));
  }
  SimWorker& AnyWorker() { return *workers_[AnyOf(workers_.size())]; }

  // The worker whose life `id` is; null: it has ended.
  SimWorker* Find(NodeId id) {
    const auto found = worker_of_.find(id);
    return found == worker_of_.end() ? nullptr : workers_[found->second].get();
  }

  NodeId NewLife(const SimWorker& worker) {
    const NodeId life{++last_node_};
    worker_of_[life] = worker.index();
    return life;
  }
  void Start(SimWorker& worker) { worker.Start(NewLife(worker)); }

  // A life ends: nobody is told but by its connections.
  void EndLife(SimWorker& worker) {
    NoteLife(worker);
    worker_of_.erase(worker.life());
    events_.End(worker.life());
    links_.WorkerGone(worker.index());
  }

  // ---- Connections

  SimLinks::Listener MakeListener() {
    return {.both_up =
                [this](const SimLinks::End& end) {
                  return Find(end.life) != nullptr && gateways_[end.slot] != nullptr;
                },
            .connected =
                [this](const SimLinks::End& end) {
                  Find(end.life)->core().Connected(end.at_worker, false);
                },
            .refused = [this](const SimLinks::End& end) { WorkerEnded(end, "refused"); },
            .ended = [this](const SimLinks::End& end, bool at_worker) { Ended(end, at_worker); },
            .frame = [this](const SimLinks::End& end, bool to_worker,
                            ClusterMessage message) { Frame(end, to_worker, std::move(message)); }};
  }

  SimEvents::Listener MakeEventListener() {
    return {.heard =
                [this](size_t slot, NodeId life, const EventUpdate& update) {
                  GatewayCore& gateway = gateways_[slot]->core();
                  if (life == SimPool::kLife) {
                    return gateway.HeardStore(0, update, schedule_.now());
                  }
                  gateway.Heard(life, update, schedule_.now());
                },
            .parted =
                [this](size_t worker, size_t slot) {
                  return worker == SimEvents::kPool ? pool_.away : links_.Parted(worker, slot);
                }};
  }

  void WorkerEnded(const SimLinks::End& end, const std::string& why) {
    if (SimWorker* worker = Find(end.life)) {
      worker->core().Ended(end.at_worker, why, schedule_.now());
    }
  }

  void Ended(const SimLinks::End& end, bool at_worker) {
    if (at_worker) {
      WorkerEnded(end, "lost");
    } else if (gateways_[end.slot]) {
      gateways_[end.slot]->core().Ended(end.at_gateway, "lost", schedule_.now());
    }
  }

  void Frame(const SimLinks::End& end, bool to_worker, ClusterMessage message) {
    Digest(end.at_gateway * 31 + message.index());
    if (to_worker) {
      if (SimWorker* worker = Find(end.life)) {
        worker->core().Receive(end.at_worker, std::move(message), schedule_.now());
      }
    } else if (gateways_[end.slot]) {
      gateways_[end.slot]->core().Receive(end.at_gateway, std::move(message), schedule_.now());
    }
  }

  // ---- Faults

  void Crash() {
    SimWorker& worker = AnyWorker();
    if (!worker.up()) return;
    ++report_.crashes;
    EndLife(worker);
    worker.Crash();
    StartAgain(worker);
  }

  void StartAgain(SimWorker& worker) {
    schedule_.In(Seconds(0.5 + 2 * random_.Uniform()), [this, &worker] { Start(worker); });
  }

  void Partition() {
    ++report_.partitions;
    const Seconds length(6 * random_.Uniform());
    const SimWorker& a = AnyWorker();
    if (random_.Chance(0.6)) return links_.Part(a.index(), AnyOf(gateways_.size()), length);
    const SimWorker& b = AnyWorker();
    if (&a != &b) pages_.Part(a, b, length);
  }

  // The connections of its clients are gone; the next life of it knows nothing of them.
  void LoseGateway() {
    const size_t slot = AnyOf(gateways_.size());
    if (!gateways_[slot]) return;
    ++report_.gateway_lost;
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

  void LosePoolPages() { report_.pool_losses += pool_.Lose(random_.Uniform(), random_); }

  // Nobody reaches it for a while; started anew it is empty.
  void LosePool() {
    if (!has_tiers_ || pool_.away) return;
    ++report_.pool_outages;
    pool_.away = true;
    if (random_.Chance(0.7)) pool_.Clear();
    schedule_.In(Seconds(6 * random_.Uniform()), [this] { pool_.away = false; });
  }

  // ---- Operators

  SimGateway* AnyGateway() { return gateways_[AnyOf(gateways_.size())].get(); }

  // A member of `gateway`, if it has any.
  std::optional<NodeId> AnyMember(const SimGateway& gateway) {
    const auto& members = gateway.core().registry().members();
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
    gateway->core().Drain(*node, Seconds(2 * random_.Uniform() * random_.Uniform()),
                          schedule_.now());
    schedule_.In(Seconds(4 * random_.Uniform()), [this, node, of = gateway->core().self()] {
      for (const auto& gateway : gateways_) {
        if (!gateway || gateway->core().self() != of) continue;
        const auto member = gateway->core().registry().members().find(*node);
        if (member == gateway->core().registry().members().end()) continue;
        (void)gateway->core().Enlist(*node, member->second.hello.role, schedule_.now());
      }
    });
  }

  void ChangeRole() {
    SimGateway* gateway = AnyGateway();
    const auto node = gateway != nullptr ? AnyMember(*gateway) : std::nullopt;
    if (!node) return;
    ++report_.role_changes;
    const auto role = static_cast<WorkerRole>(random_.Between(0, 2));
    (void)gateway->core().Enlist(*node, role, schedule_.now());
  }

  // A worker is told to end: it lets what it has go on for a while.
  void Leave() {
    SimWorker& worker = AnyWorker();
    if (!worker.up()) return;
    ++report_.leaves;
    worker.core().Leave(Seconds(3 * random_.Uniform()), schedule_.now());
  }

  // ---- Driving

  void TickAll() {
    const Seconds now = schedule_.now();
    for (const auto& gateway : gateways_) {
      if (gateway) gateway->core().Tick(now);
    }
    for (const auto& worker : workers_) {
      if (!worker->up()) continue;
      worker->core().Tick(now);
      worker->Settle();
      Follow(*worker, worker->core().Fate(now));
    }
    events_.Tick();
    schedule_.In(Seconds(0.02 + 0.02 * random_.Uniform()), [this] { TickAll(); });
  }

  void Follow(SimWorker& worker, const WorkerFate& fate) {
    using Kind = WorkerFate::Kind;
    if (fate.kind == Kind::kGoesOn) return;
    EndLife(worker);
    if (fate.kind == Kind::kBeginsAnew) {  // A healthy one was taken for dead.
      ++report_.false_alarms;
      return worker.BeNew(NewLife(worker));
    }
    if (!fate.end) Fault(Format("a worker gives up: {}", fate.end.error().message));
    worker.Leave();
    StartAgain(worker);
  }

  // Carries out what the last event asked for.
  void Settle() {
    for (size_t slot = 0; slot < gateways_.size(); ++slot) {
      if (gateways_[slot]) SettleGateway(slot);
    }
    for (const auto& worker : workers_) {
      if (worker->up()) worker->Settle();
    }
    if (++settled_ % 16 != 0) return;
    for (const auto& gateway : gateways_) {
      if (gateway) gateway->core().dispatcher().Verify();
    }
    for (const auto& worker : workers_) {
      if (worker->up()) worker->core().worker().Verify();
    }
  }

  void SettleGateway(size_t slot) {
    SimGateway& gateway = *gateways_[slot];
    gateway.Settle();
    for (const DispatchEvent& event : gateway.core().TakeEvents()) {
      if (std::string wrong = clients_.Take(slot, event); !wrong.empty()) Fault(std::move(wrong));
    }
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
    const WorkerStats stats = worker.core().worker().stats();
    report_.expired_leases += stats.counters.expired_leases;
    report_.handovers += stats.counters.handovers;
    report_.following_steps += worker.following_steps();
    report_.lost_prefixes += stats.scheduler.lost_prefixes;
    worker.core().worker().Verify();  // Its transfers add up, too.
    const std::string& fault = worker.executor().first_fault();
    if (!fault.empty()) Fault(Format("worker {}: {}", worker.life().value, fault));
  }

  void CheckEnd() {
    for (const auto& each : workers_) {
      const SimWorker& worker = *each;
      NoteLife(worker);
      if (std::string left = worker.Left(); !left.empty()) {
        Fault(Format("{} {} has {} at the end", RoleName(worker.core().options().role),
                     worker.life().value, left));
      }
    }
    if (std::string wrong = clients_.CheckEnd(); !wrong.empty()) Fault(std::move(wrong));
    for (const auto& gateway : gateways_) {
      CheckEndOf(*gateway);
      if (has_events_) CheckPages(gateway->core());
    }
  }

  void CheckPages(GatewayCore& gateway) {
    std::set<BlockKey> keys;
    if (const auto space = gateway.PageSpace()) keys = clients_.Keys(*space);
    const auto lives = [this](NodeId node) { return Find(node) != nullptr; };
    SimKnownPages known =
        CheckKnownPages(gateway, {.workers = workers_, .pool = pool_, .keys = keys, .lives = lives},
                        schedule_.now());
    report_.known_pages += known.pairs;
    if (!known.fault.empty()) Fault(std::move(known.fault));
  }

  void CheckEndOf(const SimGateway& gateway) {
    const Dispatcher& dispatcher = gateway.core().dispatcher();
    for (const WorkerLoad& load : dispatcher.loads(schedule_.now())) {
      if (load.requests != 0) {
        Fault(Format("worker {} has a load of {}", load.node.value, load.requests));
      }
    }
    for (const int64_t count : dispatcher.stats().retried) report_.retries += count;
    if (dispatcher.live() != 0 || dispatcher.waiting() != 0) Fault("the dispatcher is not empty");
    for (const auto& worker : workers_) {
      if (!gateway.core().registry().LinkOf(worker->life())) {
        Fault(Format("worker {} and gateway {} have not found each other", worker->life().value,
                     gateway.core().self().value));
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
  bool has_tiers_ = false;
  bool has_events_ = false;
  bool alike_ = false;  // Prompts, over few device pages: tiers have much to do.
  SimPool pool_;
  SimDirectory directory_;
  SimEvents events_;
  std::vector<std::unique_ptr<SimGateway>> gateways_;  // By address; none: it is to come back
  std::vector<std::unique_ptr<SimWorker>> workers_;
  std::map<NodeId, size_t> worker_of_;  // By life
  uint64_t last_gateway_ = 0;
  uint64_t last_node_ = kFirstWorker;
  uint64_t settled_ = 0;
  SimClusterReport report_;
};

}  // namespace

SimClusterReport RunSimCluster(uint64_t seed) { return Cluster(seed).Run(); }

}  // namespace divisi
