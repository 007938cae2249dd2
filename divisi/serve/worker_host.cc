#include "divisi/serve/worker_host.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "divisi/core/format.h"
#include "divisi/core/random.h"
#include "divisi/serve/frame_connection.h"

namespace divisi {
namespace {

constexpr Seconds kReport{1};
constexpr Seconds kReconnect{0.2};
constexpr Seconds kConnectTimeout{2};
// Longest sleep; shorter while page writes are under way, whose ends nobody announces.
constexpr Seconds kIdle{0.05};
constexpr Seconds kWriting{0.0005};

NodeId FreshNode() { return {SystemRandom()}; }

class NoCarrier final : public PageCarrier {
 public:
  std::string address() const override { return ""; }
  std::vector<std::byte> descriptor() const override { return {}; }
  void AddPeer(NodeId, const std::string&, std::span<const std::byte>) override {}
  void RemovePeer(NodeId) override {}
  void Write(const PageWrite& write) override { done_.push_back({write.id, false}); }
  std::vector<Done> Poll() override { return std::exchange(done_, {}); }

 private:
  std::vector<Done> done_;
};

}  // namespace

std::unique_ptr<PageCarrier> NoPageCarrier() { return std::make_unique<NoCarrier>(); }

struct WorkerHost::State {
  State(WorkerHostOptions given, Executor& e, PageCarrier& p, const Clock& c, Logger& l)
      : options(std::move(given)), executor(e), carrier(p), clock(c), logger(l) {
    BeNew();
  }

  void BeNew();
  Result<void> Connect();
  bool TakeInbox();
  void Take(ClusterMessage message);
  void Flush();
  void Beat();
  void Sleep();
  bool Idle() const;

  const WorkerHostOptions options;
  Executor& executor;
  PageCarrier& carrier;
  const Clock& clock;
  Logger& logger;

  // The computing thread's own.
  NodeId self;
  std::unique_ptr<Worker> worker;
  std::vector<NodeId> peers;
  std::optional<NodeId> gateway;  // Once it has welcomed this worker
  std::optional<std::string> rejected;
  Seconds last_heard, last_try{-1e9}, last_ping, last_report;
  int64_t writing = 0;

  // Filled by the loop's thread.
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::vector<std::byte>> inbox;
  bool connection_ended = false;

  std::shared_ptr<FrameConnection> connection;
  FrameLoop loop;
};

// A new life: nothing of the old one is known any more.
void WorkerHost::State::BeNew() {
  self = FreshNode();
  worker = std::make_unique<Worker>(self, options.scheduler, options.times);
  for (const NodeId peer : std::exchange(peers, {})) carrier.RemovePeer(peer);
  writing = 0;
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
                                        .data_address = carrier.address(),
                                        .data_descriptor = carrier.descriptor()}));
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
    peers.push_back(up->node);
    carrier.AddPeer(up->node, up->data_address, up->data_descriptor);
  } else if (const auto* gone = std::get_if<PeerGoneMessage>(&message)) {
    std::erase(peers, gone->node);
    carrier.RemovePeer(gone->node);  // First: from here on none of its writes lands.
    worker->PeerGone(gone->node, now);
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
    ++writing;
    carrier.Write(write);
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
  Seconds most = writing > 0 ? kWriting : kIdle;
  if (const auto timer = worker->NextTimer()) {
    most = std::clamp(*timer - clock.Now(), Seconds(0), most);
  }
  std::unique_lock lock(mutex);
  wake.wait_for(lock, std::chrono::nanoseconds(static_cast<int64_t>(most.value * 1e9)),
                [this] { return !inbox.empty() || connection_ended; });
}

bool WorkerHost::State::Idle() const {
  const WorkerStats stats = worker->stats();
  return stats.incoming == 0 && stats.outgoing == 0;
}

WorkerHost::WorkerHost(WorkerHostOptions options, Executor& executor, PageCarrier& carrier,
                       const Clock& clock, Logger& logger)
    : state_(std::make_unique<State>(std::move(options), executor, carrier, clock, logger)) {}
WorkerHost::~WorkerHost() = default;

Result<void> WorkerHost::Run(const std::atomic<bool>& stop, Seconds drain, Seconds patience) {
  State& s = *state_;
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
      s.BeNew();
      s.connection.reset();
    }
    if (!s.connection && now - s.last_try >= kReconnect) {
      if (const auto connected = s.Connect(); !connected && now - s.last_heard >= patience) {
        return connected.error();
      }
    }
    for (const PageCarrier::Done& done : s.carrier.Poll()) {
      s.writing = std::max<int64_t>(0, s.writing - 1);
      s.worker->WriteDone(done.write, done.ok, s.clock.Now());
    }
    s.worker->Tick(s.clock.Now());
    bool computed = false;
    if (s.worker->HasWork()) {
      const StepPlan& plan = s.worker->Plan();
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
