#include "divisi/control/worker_host.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "divisi/control/gateway_links.h"
#include "divisi/control/step_thread.h"
#include "divisi/core/random.h"
#include "divisi/net/socket_address.h"

namespace divisi {
namespace {

// How often the carrier is asked about peers whose writes may still land.
constexpr Seconds kBarring{0.01};
// How often the tiers' counters are taken for reports.
constexpr Seconds kShowTiers{0.2};

}  // namespace

struct WorkerHost::State {
  State(WorkerHostOptions given, Executor& e, CarrierMaker maker, const Clock& c, Logger& l)
      : options(std::move(given)),
        make_carrier(std::move(maker)),
        clock(c),
        logger(l),
        steps(e, [this] { Wake(); }),
        links([this] { Wake(); }) {}

  Result<void> Begin();
  Result<void> BeNew();
  void Wake();

  // What goes into the core
  void TakeDirectory();
  void TakeArrivals();
  void Arrived(const GatewayLinks::Arrival& arrival);
  void Frame(const GatewayLinks::Arrival& arrival);
  void TakePages();
  void CarryTiers();
  void TellPages();
  void Step();
  Result<void> OpenTiers();
  Result<EventEndpoints> OpenEvents();
  Result<std::string> OpenExport();
  // The host at which others reach this process.
  std::string ReachedHost() const {
    return carrier->address().substr(0, carrier->address().rfind(':'));
  }

  // What comes out of it
  void Flush();
  void Do(const DialAction& dial) { links.Dial(dial); }
  void Do(const SendAction& action) { links.Send(action.link, action.message); }
  void Do(const AddPeerAction& action);
  void Do(const BarAction& action) { barring.push_back(action.node); }
  void Do(const PageWrite& write) { carrier->Write(write); }
  void Do(DirectoryAction& action);
  void Do(LogAction& action) { logger.Log(action.level, action.event, std::move(action.fields)); }

  void Sleep();

  const WorkerHostOptions options;
  const CarrierMaker make_carrier;
  const Clock& clock;
  Logger& logger;

  std::mutex mutex;
  std::condition_variable wake;
  // Guarded by mutex.
  bool woken = false;  // Arrivals are there, or the carrier has answers.
  std::vector<DirectoryEvent> events;

  // The deciding thread's own.
  std::optional<WorkerCore> core;
  std::unique_ptr<PageCarrier> carrier;
  std::unique_ptr<TierDriver> tiers;
  bool lived = false;                    // There was a life before.
  std::unique_ptr<PageExport> exported;  // Of the tiers
  Seconds show_tiers_at;
  std::unique_ptr<EventPublisher> events_out;
  std::vector<NodeId> barring;  // Peers whose writes may still land

  // Last: their threads end before what they use goes.
  StepThread steps;  // Before the core, whose plans it reads
  GatewayLinks links;
  std::unique_ptr<EtcdDirectory> directory;
};

void WorkerHost::State::Wake() {
  const std::lock_guard lock(mutex);
  woken = true;
  wake.notify_one();
}

Result<void> WorkerHost::State::Begin() {
  if (options.tls) RETURN_IF_ERROR(links.UseTls(*options.tls));
  core.emplace(options.core, clock.Now());
  if (options.etcd) {
    ASSIGN_OR_RETURN(directory, EtcdDirectory::Open(*options.etcd, "gateway/", clock, logger));
  }
  RETURN_IF_ERROR(BeNew());
  if (!directory) return {};
  directory->Start([this](const DirectoryEvent& event) {
    {
      const std::lock_guard lock(mutex);
      events.push_back(event);
    }
    Wake();
  });
  return {};
}

// Nothing of an old life goes on.
Result<void> WorkerHost::State::BeNew() {
  steps.Drop();
  links.CloseAll();
  carrier.reset();
  exported.reset();
  tiers.reset();  // None of its reads lands any more.
  show_tiers_at = Seconds(0);
  events_out.reset();
  barring.clear();
  const NodeId self{SystemRandom()};
  ASSIGN_OR_RETURN(carrier, make_carrier(self, [this] { Wake(); }));
  // Where it is a name, it is looked up here, once.
  std::optional<PrefixLoaderOptions> prefixes;
  RETURN_IF_ERROR(OpenTiers());
  if (tiers) prefixes = tiers->LoaderOptions();
  ASSIGN_OR_RETURN(std::string exported_at, OpenExport());
  ASSIGN_OR_RETURN(EventEndpoints told_at, OpenEvents());
  const auto reached_at = ParseSocketAddress(carrier->address());
  core->BeNew(self,
              {.address = carrier->address(),
               .descriptor = carrier->descriptor(),
               .loopback = reached_at && reached_at->IsLoopback(),
               .exported_at = std::move(exported_at)},
              std::move(prefixes), std::move(told_at));
  if (tiers) tiers->Restore(*core->prefixes());
  lived = true;
  Flush();
  return {};
}

Result<void> WorkerHost::State::OpenTiers() {
  if (!options.open_tiers) return {};
  auto opened = options.open_tiers(/*disk=*/true);
  if (!opened && lived) {
    const Error why = opened.error();
    opened = options.open_tiers(/*disk=*/false);
    if (!opened) return opened.error();
    logger.Log(
        LogLevel::kWarning, "KV goes on without the disk",
        {{"why", why.message}, {"remedy", "once the disk answers, start this worker again"}});
  }
  if (!opened) return opened.error();
  tiers = *std::move(opened);
  if (tiers) tiers->WakeBy([this] { Wake(); });
  return {};
}

Result<EventEndpoints> WorkerHost::State::OpenEvents() {
  if (!options.open_events) return EventEndpoints();
  ASSIGN_OR_RETURN(events_out, options.open_events());
  if (!events_out) return EventEndpoints();
  // Whoever reaches its pages reaches its events.
  const std::string host = ReachedHost();
  return EventEndpoints{.live = EndpointReachedAt(events_out->endpoint(), host),
                        .replay = EndpointReachedAt(events_out->replay_endpoint(), host),
                        .topic = options.events_topic};
}

Result<std::string> WorkerHost::State::OpenExport() {
  if (!options.open_export || !tiers || tiers->host() == nullptr) return std::string();
  ASSIGN_OR_RETURN(exported, options.open_export(tiers->host()));
  if (!exported) return std::string();
  std::string address = exported->address();
  const auto listens = ParseSocketAddress(address);
  if (!listens || !listens->IsWildcard()) return address;
  return ReachedHost() + address.substr(address.rfind(':'));
}

// ---- What goes into the core

void WorkerHost::State::TakeDirectory() {
  std::vector<DirectoryEvent> told;
  {
    const std::lock_guard lock(mutex);
    told = std::exchange(events, {});
  }
  for (const DirectoryEvent& event : told) core->Told(event);
}

void WorkerHost::State::TakeArrivals() {
  for (const GatewayLinks::Arrival& arrival : links.Take()) {
    Arrived(arrival);
    Flush();
  }
}

void WorkerHost::State::Arrived(const GatewayLinks::Arrival& arrival) {
  switch (arrival.kind) {
    case GatewayLinks::Arrival::Kind::kConnected:
      return core->Connected(arrival.link, arrival.loopback);
    case GatewayLinks::Arrival::Kind::kEnded:
      return core->Ended(arrival.link, arrival.why, clock.Now());
    case GatewayLinks::Arrival::Kind::kFrame:
      return Frame(arrival);
  }
}

void WorkerHost::State::Frame(const GatewayLinks::Arrival& arrival) {
  auto message = DecodeClusterMessage(arrival.frame);
  if (!message) {
    return logger.Log(LogLevel::kWarning, "bad frame", {{"reason", message.error().message}});
  }
  core->Receive(arrival.link, *std::move(message), clock.Now());
}

void WorkerHost::State::TakePages() {
  for (const PageCarrier::Done& done : carrier->Poll()) {
    core->WriteDone(done.write, done.ok, clock.Now());
  }
  std::erase_if(barring, [this](NodeId peer) {
    if (!carrier->RemovePeer(peer)) return false;
    core->Barred(peer, clock.Now());
    return true;
  });
  Flush();
}

void WorkerHost::State::CarryTiers() {
  if (!tiers) return;
  const Seconds now = clock.Now();
  tiers->Carry(*core->prefixes(), core->worker().PromptToken(), now);
  if (now < show_tiers_at) return;
  show_tiers_at = now + kShowTiers;
  core->ShowTiers(tiers->stats());
}

void WorkerHost::State::TellPages() {
  if (!events_out) return;
  auto events = core->TakeNews(events_out->Room());
  if (!events.empty()) events_out->Publish(std::move(events));
}

// The next step where the last one has ended.
void WorkerHost::State::Step() {
  if (auto results = steps.TakeResults()) core->EndStep(*std::move(results), clock.Now());
  const StepPlan* plan = core->BeginStep(clock.Now());
  Flush();
  if (plan != nullptr) steps.Begin(*plan);
}

// ---- What comes out of it

void WorkerHost::State::Flush() {
  for (WorkerAction& action : core->TakeActions()) {
    std::visit([this](auto& each) { Do(each); }, action);
  }
}

void WorkerHost::State::Do(const AddPeerAction& action) {
  carrier->AddPeer(action.node, action.memory.address, action.memory.descriptor);
}

void WorkerHost::State::Do(DirectoryAction& action) {
  if (directory) directory->Do(std::move(action));
}

void WorkerHost::State::Sleep() {
  Seconds most = core->UntilTick(clock.Now());
  if (!barring.empty()) most = std::min(most, kBarring);
  std::unique_lock lock(mutex);
  wake.wait_for(lock, std::chrono::nanoseconds(static_cast<int64_t>(most.value * 1e9)),
                [this] { return woken; });
  woken = false;
}

WorkerHost::WorkerHost(WorkerHostOptions options, Executor& executor, CarrierMaker make_carrier,
                       const Clock& clock, Logger& logger)
    : state_(std::make_unique<State>(std::move(options), executor, std::move(make_carrier), clock,
                                     logger)) {}
WorkerHost::~WorkerHost() = default;

Result<void> WorkerHost::Run(const WorkerLife& life) {
  State& s = *state_;
  RETURN_IF_ERROR(s.Begin());
  while (true) {
    if (life.stop) s.core->Leave(life.drain, s.clock.Now());
    s.TakeDirectory();
    s.TakeArrivals();
    s.core->Tick(s.clock.Now());
    s.Flush();
    s.TakePages();
    s.CarryTiers();
    s.Step();
    s.TellPages();
    WorkerFate fate = s.core->Fate(s.clock.Now());
    if (fate.kind == WorkerFate::Kind::kEnds) {
      s.directory.reset();  // Its lease with it
      s.exported.reset();
      s.tiers.reset();
      s.events_out.reset();
      return std::move(fate.end);
    }
    if (fate.kind == WorkerFate::Kind::kBeginsAnew) {
      s.logger.Log(LogLevel::kWarning, "a new life", {{"reason", fate.why}});
      RETURN_IF_ERROR(s.BeNew());
    }
    s.Sleep();
  }
}

}  // namespace divisi
