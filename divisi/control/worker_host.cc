#include "divisi/control/worker_host.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "divisi/control/frame_connection.h"
#include "divisi/core/format.h"
#include "divisi/core/random.h"

namespace divisi {
namespace {

constexpr Seconds kReport{0.4};  // With every heartbeat
constexpr Seconds kReconnect{0.2};
constexpr Seconds kConnectTimeout{2};
constexpr Seconds kIdle{0.05};  // Longest sleep; what matters wakes it.
constexpr Seconds kBarring{0.01};

NodeId FreshNode() { return {SystemRandom()}; }

}  // namespace

struct WorkerHost::State {
  State(WorkerHostOptions given, Executor& e, CarrierMaker maker, const Clock& c, Logger& l)
      : options(std::move(given)),
        executor(e),
        make_carrier(std::move(maker)),
        clock(c),
        logger(l) {}

  Result<void> BeNew();
  void Bar();
  Result<void> Connect();
  bool TakeInbox();
  void Take(ClusterMessage message);
  void Flush();
  void Beat();
  void Sleep();
  bool Idle() const;

  const WorkerHostOptions options;
  Executor& executor;
  const CarrierMaker make_carrier;
  const Clock& clock;
  Logger& logger;

  // Filled by the threads of the loop and of the carrier, which both end before this goes.
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::vector<std::byte>> inbox;
  bool connection_ended = false;
  bool written = false;  // The carrier has answers

  // The computing thread's own.
  NodeId self;
  std::unique_ptr<Worker> worker;
  std::unique_ptr<PageCarrier> carrier;
  std::vector<NodeId> gone;       // Peers whose writes may still land
  std::optional<NodeId> gateway;  // Once it has welcomed this worker
  std::optional<std::string> rejected;
  Seconds last_heard, last_try{-1e9}, last_ping, last_report;

  std::shared_ptr<FrameConnection> connection;
  FrameLoop loop;
};

// A new life: nothing of the old one is known any more, and none of its writes goes on.
Result<void> WorkerHost::State::BeNew() {
  self = FreshNode();
  worker = std::make_unique<Worker>(self, options.scheduler, options.times);
  carrier.reset();
  gone.clear();
  ASSIGN_OR_RETURN(carrier, make_carrier(self, [this] {
                     const std::lock_guard lock(mutex);
                     written = true;
                     wake.notify_one();
                   }));
  return {};
}

// The worker hears that a peer is gone only when none of its writes can land any more.
void WorkerHost::State::Bar() {
  std::erase_if(gone, [this](NodeId peer) {
    if (!carrier->RemovePeer(peer)) return false;
    worker->PeerGone(peer, clock.Now());
    return true;
  });
}

Result<void> WorkerHost::State::Connect() {
  last_try = clock.Now();
  gateway.reset();
  {
    const std::lock_guard lock(mutex);
    inbox.clear();
    connection_ended = false;
  }
  ASSIGN_OR_RETURN(connection,
                   loop.Connect(options.gateway_host, options.gateway_port, kConnectTimeout));
  FrameLoop::Start(
      connection,
      [this](std::vector<std::byte> frame) {
        const std::lock_guard lock(mutex);
        inbox.push_back(std::move(frame));
        wake.notify_one();
      },
      [this, raw = connection.get()](const std::string&) {
        const std::lock_guard lock(mutex);
        if (raw == connection.get()) connection_ended = true;
        wake.notify_one();
      });
  connection->Send(
      EncodeClusterMessage(HelloMessage{.node = self,
                                        .role = options.role,
                                        .name = options.name,
                                        .compatibility = options.compatibility,
                                        .pages = options.scheduler.blocks,
                                        .max_sequences = options.scheduler.max_sequences,
                                        .data_address = carrier->address(),
                                        .data_descriptor = carrier->descriptor()}));
  return {};
}

// False when the connection is no more.
bool WorkerHost::State::TakeInbox() {
  std::deque<std::vector<std::byte>> frames;
  bool ended = false;
  {
    const std::lock_guard lock(mutex);
    frames = std::exchange(inbox, {});
    ended = connection_ended;
  }
  for (const std::vector<std::byte>& frame : frames) {
    auto message = DecodeClusterMessage(frame);
    if (!message) {
      logger.Log(LogLevel::kWarning, "bad frame", {{"reason", message.error().message}});
      continue;
    }
    Take(std::move(*message));
  }
  return !ended;
}

void WorkerHost::State::Take(ClusterMessage message) {
  const Seconds now = clock.Now();
  last_heard = now;
  if (auto* relay = std::get_if<RelayMessage>(&message)) {
    if (relay->to == self) worker->Receive(relay->from, std::move(relay->message), now);
  } else if (const auto* up = std::get_if<PeerUpMessage>(&message)) {
    carrier->AddPeer(up->node, up->data_address, up->data_descriptor);
  } else if (const auto* left = std::get_if<PeerGoneMessage>(&message)) {
    gone.push_back(left->node);
  } else if (const auto* welcome = std::get_if<WelcomeMessage>(&message)) {
    gateway = welcome->gateway;
    logger.Log(LogLevel::kInfo, "joined",
               {{"gateway", Format("{}:{}", options.gateway_host, options.gateway_port)},
                {"role", RoleName(options.role)}});
  } else if (const auto* reject = std::get_if<RejectMessage>(&message)) {
    rejected = reject->reason;
  }
}

void WorkerHost::State::Flush() {
  for (const PageWrite& write : worker->TakeWrites()) {
    carrier->Write(write);
  }
  for (Outgoing& outgoing : worker->TakeMessages()) {
    if (!connection) continue;  // Said again, or a lease ends it.
    connection->Send(
        EncodeClusterMessage(RelayMessage{self, outgoing.to, std::move(outgoing.message)}));
  }
}

void WorkerHost::State::Beat() {
  const Seconds now = clock.Now();
  if (!connection || now - last_ping < kHeartbeat) return;
  last_ping = now;
  if (now - last_report < kReport) {
    return connection->Send(EncodeClusterMessage(PingMessage{}));
  }
  last_report = now;
  const WorkerStats stats = worker->stats();
  connection->Send(EncodeClusterMessage(ReportMessage{.running = stats.scheduler.running,
                                                      .waiting = stats.scheduler.waiting,
                                                      .held = stats.scheduler.held,
                                                      .reserved = stats.scheduler.reserved,
                                                      .stopping = stats.stopping,
                                                      .blocks_total = stats.scheduler.blocks_total,
                                                      .blocks_used = stats.scheduler.blocks_used,
                                                      .prefill_tokens = stats.prefill_tokens,
                                                      .decode_tokens = stats.decode_tokens,
                                                      .pages_written = stats.pages_written,
                                                      .handovers = stats.handovers,
                                                      .expired_leases = stats.expired_leases}));
}

void WorkerHost::State::Sleep() {
  Seconds most = gone.empty() ? kIdle : kBarring;
  if (const auto timer = worker->NextTimer()) {
    most = std::clamp(*timer - clock.Now(), Seconds(0), most);
  }
  std::unique_lock lock(mutex);
  wake.wait_for(lock, std::chrono::nanoseconds(static_cast<int64_t>(most.value * 1e9)),
                [this] { return !inbox.empty() || connection_ended || written; });
  written = false;
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

Result<void> WorkerHost::Run(const std::atomic<bool>& stop, Seconds drain, Seconds patience) {
  State& s = *state_;
  RETURN_IF_ERROR(s.BeNew());
  s.last_heard = s.clock.Now();
  std::optional<Seconds> stop_at;
  while (true) {
    const Seconds now = s.clock.Now();
    if (stop && !stop_at) stop_at = now + drain;
    if (stop_at && (now >= *stop_at || s.Idle())) return {};
    if (s.connection && !s.TakeInbox()) s.connection.reset();
    if (s.rejected) {
      const std::string reason = *std::exchange(s.rejected, {});
      if (reason.find("declared dead") == std::string::npos) {
        return Error{Code::kInvalidArgument, "the gateway refuses this worker: " + reason};
      }
      s.logger.Log(LogLevel::kWarning, "a new life", {{"reason", reason}});
      s.connection.reset();
      RETURN_IF_ERROR(s.BeNew());
    }
    if (!s.connection && now - s.last_try >= kReconnect) {
      if (const auto connected = s.Connect(); !connected && now - s.last_heard >= patience) {
        return connected.error();
      }
    }
    for (const PageCarrier::Done& done : s.carrier->Poll()) {
      s.worker->WriteDone(done.write, done.ok, s.clock.Now());
    }
    s.Bar();
    s.worker->Tick(s.clock.Now());
    bool computed = false;
    if (s.worker->HasWork()) {
      const StepPlan& plan = s.worker->Plan(s.clock.Now());
      if (!plan.slices.empty()) {
        std::vector<SliceResult> results = s.executor.Execute(plan);
        s.worker->Commit(std::move(results), s.clock.Now());
        computed = true;
      }
    }
    s.Flush();
    s.Beat();
    if (!computed) s.Sleep();
  }
}

}  // namespace divisi
