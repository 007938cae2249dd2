#include "divisi/control/worker_host.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include "divisi/control/gateway_links.h"
#include "divisi/control/member_keys.h"
#include "divisi/control/step_thread.h"
#include "divisi/core/format.h"
#include "divisi/core/random.h"
#include "divisi/net/socket_address.h"

namespace divisi {
namespace {

constexpr Seconds kReport{0.5};
constexpr Seconds kIdle{0.05};  // Longest sleep; what matters wakes it.
constexpr Seconds kBarring{0.01};
// For the last words to be heard.
constexpr Seconds kFarewell{0.5};

ReportMessage ReportOf(const WorkerStats& stats) {
  return {.running = stats.scheduler.running,
          .waiting = stats.scheduler.waiting,
          .held = stats.scheduler.held,
          .reserved = stats.scheduler.reserved,
          .prompt_backlog = stats.scheduler.prompt_backlog,
          .stopping = stats.stopping,
          .computing = stats.computing,
          .writing = stats.writing,
          .handed_over = stats.handed_over,
          .ending = stats.ending,
          .pages_reserved = stats.pages_reserved,
          .pages_pinned = stats.pages_pinned,
          .blocks_total = stats.scheduler.blocks_total,
          .blocks_used = stats.scheduler.blocks_used,
          .counters = stats.counters,
          .rates = stats.rates};
}

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
  HelloMessage Self() const;
  void Wake();
  void TakeDirectory();
  void Dial();
  Result<void> TakeArrivals();
  Result<void> Connected(const GatewayLinks::Arrival& arrival);
  void Ended(const GatewayLinks::Arrival& arrival);
  void Frame(const GatewayLinks::Arrival& arrival);
  void On(LinkId, RelayMessage& relay);
  void On(LinkId link, WelcomeMessage& welcome);
  void On(LinkId, RejectMessage& reject) { rejected = std::move(reject); }
  void On(LinkId link, PeerUpMessage& up);
  void On(LinkId link, PeerGoneMessage& left) { membership.PeerLost(link, left.node, left.loss); }
  template <typename Other>
  void On(LinkId, Other&) {}  // Pings, and what is for gateways
  void Bar();
  void Step();
  void Flush();
  void Report();
  void TellAll(const ClusterMessage& message);
  void SayFarewell();
  void Sleep();
  bool Idle() const;

  const WorkerHostOptions options;
  const CarrierMaker make_carrier;
  const Clock& clock;
  Logger& logger;

  std::mutex mutex;
  std::condition_variable wake;
  // Guarded by mutex.
  bool woken = false;  // Arrivals are there, or the carrier has answers.
  std::vector<DirectoryEvent> announced;

  // The deciding thread's own.
  NodeId self;
  std::unique_ptr<Worker> worker;
  std::unique_ptr<PageCarrier> carrier;
  bool carrier_is_local = false;  // No other machine reaches it.
  Membership membership;
  std::vector<NodeId> barring;  // Peers whose writes may still land
  std::optional<RejectMessage> rejected;
  std::string last_failure;  // Each is logged once
  bool leaving = false;
  Seconds drain;  // Once it leaves
  Seconds last_report;

  std::map<std::string, GatewayAddress> announced_at;  // By key

  // Last: their threads end before what they use goes.
  StepThread steps;  // Before the worker, whose plans it reads
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
  membership.Expect(options.gateways);
  membership.Heard(clock.Now());
  if (options.etcd) {
    ASSIGN_OR_RETURN(directory, EtcdDirectory::Open(*options.etcd, "gateway/", clock, logger));
  }
  RETURN_IF_ERROR(BeNew());
  if (!directory) return {};
  directory->Start([this](const DirectoryEvent& event) {
    {
      const std::lock_guard lock(mutex);
      announced.push_back(event);
    }
    Wake();
  });
  return {};
}

// A new life: nothing of the old one is known any more, and none of its writes goes on.
Result<void> WorkerHost::State::BeNew() {
  steps.Drop();
  links.CloseAll();
  membership.BeNew();
  if (directory) directory->Drop(WorkerKey(self));
  self = NodeId{SystemRandom()};
  worker = std::make_unique<Worker>(self, options.scheduler, options.times, options.page);
  carrier.reset();
  barring.clear();
  ASSIGN_OR_RETURN(carrier, make_carrier(self, [this] { Wake(); }));
  // Where it is a name, it is looked up here, once.
  const auto reached_at = ParseSocketAddress(carrier->address());
  carrier_is_local = reached_at && reached_at->IsLoopback();
  if (directory) directory->Keep(WorkerKey(self), WorkerRecord(Self()));
  return {};
}

HelloMessage WorkerHost::State::Self() const {
  return {.node = self,
          .role = options.role,
          .name = options.name,
          .compatibility = options.compatibility,
          .pages = options.scheduler.blocks,
          .max_sequences = options.scheduler.max_sequences,
          .step_tokens = options.scheduler.max_batched_tokens,
          .page_bytes = options.page.value,
          .data_address = carrier->address(),
          .data_descriptor = carrier->descriptor(),
          .gateways = static_cast<uint32_t>(membership.gateways())};
}

// Gateways that came and went.
void WorkerHost::State::TakeDirectory() {
  std::vector<DirectoryEvent> events;
  {
    const std::lock_guard lock(mutex);
    events = std::exchange(announced, {});
  }
  for (const DirectoryEvent& event : events) {
    if (event.kind != DirectoryEvent::Kind::kPut && event.kind != DirectoryEvent::Kind::kGone) {
      continue;
    }
    if (const auto was = announced_at.find(event.key); was != announced_at.end()) {
      membership.Withdraw(was->second);
      announced_at.erase(was);
    }
    if (event.kind != DirectoryEvent::Kind::kPut) continue;
    const auto address = ParseGatewayRecord(event.value);
    if (!address) continue;
    announced_at[event.key] = *address;
    membership.Announce(*address);
  }
}

// ---- Connections

void WorkerHost::State::Dial() {
  for (const Membership::Dial& dial : membership.TakeDials(clock.Now())) links.Dial(dial);
}

Result<void> WorkerHost::State::TakeArrivals() {
  for (const GatewayLinks::Arrival& arrival : links.Take()) {
    switch (arrival.kind) {
      case GatewayLinks::Arrival::Kind::kConnected:
        RETURN_IF_ERROR(Connected(arrival));
        break;
      case GatewayLinks::Arrival::Kind::kEnded:
        Ended(arrival);
        break;
      case GatewayLinks::Arrival::Kind::kFrame:
        Frame(arrival);
        break;
    }
  }
  return {};
}

Result<void> WorkerHost::State::Connected(const GatewayLinks::Arrival& arrival) {
  if (!arrival.loopback && carrier_is_local) {
    return Error{Code::kInvalidArgument,
                 Format("the gateway is on another machine, or reached as such, and other workers "
                        "would be told to write pages to {}; give --data-listen an address of this "
                        "machine that they reach, as in --data-listen 10.0.0.2:0",
                        carrier->address())};
  }
  membership.Connected(arrival.link);
  links.Send(arrival.link, Self());
  return {};
}

void WorkerHost::State::Ended(const GatewayLinks::Arrival& arrival) {
  membership.Ended(arrival.link, arrival.why, clock.Now());
  if (arrival.why == last_failure) return;
  last_failure = arrival.why;
  logger.Log(LogLevel::kWarning, "no connection to a gateway", {{"why", arrival.why}});
}

void WorkerHost::State::Frame(const GatewayLinks::Arrival& arrival) {
  membership.Heard(clock.Now());
  auto message = DecodeClusterMessage(arrival.frame);
  if (!message) {
    return logger.Log(LogLevel::kWarning, "bad frame", {{"reason", message.error().message}});
  }
  std::visit([&](auto& each) { On(arrival.link, each); }, *message);
}

void WorkerHost::State::On(LinkId, RelayMessage& relay) {
  if (relay.to == self) worker->Receive(relay.from, std::move(relay.message), clock.Now());
}

void WorkerHost::State::On(LinkId link, WelcomeMessage& welcome) {
  membership.Welcomed(link, welcome.gateway);
  last_failure.clear();
  logger.Log(LogLevel::kInfo, "joined",
             {{"gateway", membership.AddressOf(link)}, {"role", RoleName(options.role)}});
  links.Send(link, ReportOf(worker->stats()));  // What it did before is not this gateway's.
  if (leaving) links.Send(link, LeaveMessage{.drain = drain});
}

void WorkerHost::State::On(LinkId link, PeerUpMessage& up) {
  if (membership.PeerUp(link, up.node)) {
    return carrier->AddPeer(up.node, up.data_address, up.data_descriptor);
  }
  links.Send(link, PeerGoneMessage{up.node});
}

// The worker hears that a peer is gone only when none of its writes can land any more.
void WorkerHost::State::Bar() {
  for (const NodeId peer : membership.TakeGone(clock.Now())) barring.push_back(peer);
  std::erase_if(barring, [this](NodeId peer) {
    if (!carrier->RemovePeer(peer)) return false;
    worker->PeerGone(peer, clock.Now());
    return true;
  });
}

void WorkerHost::State::TellAll(const ClusterMessage& message) {
  for (const LinkId link : membership.Joined()) links.Send(link, message);
}

void WorkerHost::State::Report() {
  const Seconds now = clock.Now();
  if (now - last_report < kReport) return;
  last_report = now;
  TellAll(ReportOf(worker->stats()));
}

// Gateways that hear it close the connection; those that do not find out by its end.
void WorkerHost::State::SayFarewell() {
  TellAll(LeaveMessage{.now = true});
  const Seconds end = clock.Now() + kFarewell;
  while (!membership.Joined().empty() && clock.Now() < end) {
    Sleep();
    for (const GatewayLinks::Arrival& arrival : links.Take()) {
      if (arrival.kind != GatewayLinks::Arrival::Kind::kEnded) continue;
      membership.Ended(arrival.link, arrival.why, clock.Now());
    }
  }
}

// ---- Work

// Whatever came, then the next step where the last one has ended. Between Plan and Commit a worker
// takes messages as at any other time: a step reads only what the scheduler keeps for it.
void WorkerHost::State::Step() {
  for (const PageCarrier::Done& done : carrier->Poll()) {
    worker->WriteDone(done.write, done.ok, clock.Now());
  }
  Bar();
  worker->Tick(clock.Now());
  if (steps.busy()) {
    auto results = steps.TakeResults();
    if (!results) return;
    worker->Commit(*std::move(results), clock.Now());
  }
  if (!worker->HasWork()) return;
  const StepPlan& plan = worker->Plan(clock.Now());
  if (!plan.slices.empty()) steps.Begin(plan);
}

void WorkerHost::State::Flush() {
  for (const PageWrite& write : worker->TakeWrites()) {
    carrier->Write(write);
  }
  for (Outgoing& outgoing : worker->TakeMessages()) {
    const NodeId gateway = IdOf(outgoing.message).gateway;
    const auto link = outgoing.to == gateway ? membership.RouteTo(gateway)
                                             : membership.RouteVia(gateway, outgoing.to);
    if (!link) continue;  // Said again, or a lease ends it.
    links.Send(*link, RelayMessage{self, outgoing.to, std::move(outgoing.message)});
  }
  for (const HandoverTimes& times : worker->TakeHandovers()) {
    logger.Log(LogLevel::kDebug, "handed over",
               {{"request", static_cast<int64_t>(times.id.number)},
                {"attempt", static_cast<int64_t>(times.id.attempt)},
                {"pages", times.pages},
                {"computing_seconds", times.computing.value},
                {"writing_seconds", times.writing.value},
                {"taking_seconds", times.taking.value}});
  }
}

void WorkerHost::State::Sleep() {
  Seconds most = barring.empty() ? kIdle : kBarring;
  // While a step runs, what comes and its end wake often enough.
  if (const auto timer = steps.busy() ? std::nullopt : worker->NextTimer()) {
    most = std::clamp(*timer - clock.Now(), Seconds(0), most);
  }
  std::unique_lock lock(mutex);
  wake.wait_for(lock, std::chrono::nanoseconds(static_cast<int64_t>(most.value * 1e9)),
                [this] { return woken; });
  woken = false;
}

bool WorkerHost::State::Idle() const {
  const WorkerStats stats = worker->stats();
  return stats.incoming == 0 && stats.outgoing == 0;
}

WorkerHost::WorkerHost(WorkerHostOptions options, Executor& executor, CarrierMaker make_carrier,
                       const Clock& clock, Logger& logger)
    : state_(std::make_unique<State>(std::move(options), executor, std::move(make_carrier), clock,
                                     logger)) {}
WorkerHost::~WorkerHost() = default;

Result<void> WorkerHost::Run(const WorkerLife& life) {
  State& s = *state_;
  RETURN_IF_ERROR(s.Begin());
  Seconds leave_at;
  while (true) {
    if (life.stop && !s.leaving) {
      s.leaving = true;
      s.drain = std::min(life.drain, kLongestDrain);
      leave_at = s.clock.Now() + life.drain;
      s.TellAll(LeaveMessage{.drain = life.drain});
    }
    if (s.leaving && (s.clock.Now() >= leave_at || s.Idle())) break;
    s.TakeDirectory();
    s.Dial();
    RETURN_IF_ERROR(s.TakeArrivals());
    if (s.rejected) {
      const RejectMessage reject = *std::exchange(s.rejected, {});
      if (!reject.dead) {
        return Error{Code::kInvalidArgument, "the gateway refuses this worker: " + reject.reason};
      }
      if (s.leaving) break;
      s.logger.Log(LogLevel::kWarning, "a new life", {{"reason", reject.reason}});
      RETURN_IF_ERROR(s.BeNew());
    }
    if (std::string why = s.membership.Deserted(life.patience, s.clock.Now()); !why.empty()) {
      return Error{Code::kUnavailable, std::move(why)};
    }
    s.Step();
    s.Flush();
    s.Report();
    s.Sleep();
  }
  s.SayFarewell();
  s.directory.reset();  // Its lease with it
  return {};
}

}  // namespace divisi
