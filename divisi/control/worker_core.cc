#include "divisi/control/worker_core.h"

#include <algorithm>
#include <utility>

#include "divisi/control/member_keys.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

constexpr Seconds kReport{0.5};
// Longest time between ticks.
constexpr Seconds kIdle{0.05};
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

void AddLoads(const PrefixLoaderStats& prefixes, WorkerCounters& counters) {
  counters.kv_loads = prefixes.loads;
  counters.kv_loads_failed = prefixes.loads_failed;
  counters.kv_pages_read = prefixes.pages_read;
  counters.kv_pages_used = prefixes.pages_used;
  counters.pool_questions = prefixes.asked;
  counters.pool_unanswered = prefixes.unanswered;
  counters.pool_puts = prefixes.tiers.pool_puts;
  counters.pool_puts_failed = prefixes.tiers.pool_puts_failed;
  counters.pool_puts_dropped = prefixes.tiers.pool_puts_dropped;
}

void AddTraffic(const TierDriverStats& tiers, ReportMessage& report) {
  constexpr struct {
    Tier tier;
    int64_t WorkerCounters::*read;
    int64_t WorkerCounters::*written;
  } kTraffic[] = {
      {Tier::kHost, &WorkerCounters::host_read_bytes, &WorkerCounters::host_written_bytes},
      {Tier::kDisk, &WorkerCounters::disk_read_bytes, &WorkerCounters::disk_written_bytes},
      {Tier::kRemote, &WorkerCounters::pool_read_bytes, &WorkerCounters::pool_written_bytes}};
  for (const auto& [tier, read, written] : kTraffic) {
    const TierTraffic& traffic = tiers.io.tiers[static_cast<size_t>(tier)];
    report.counters.*read = traffic.read.value;
    report.counters.*written = traffic.written.value;
    report.counters.kv_pages_bad += traffic.pages_bad;
  }
  const TierTraffic& peers = tiers.io.tiers[static_cast<size_t>(Tier::kPeer)];
  report.counters.peer_read_bytes = peers.read.value;
  report.counters.kv_pages_bad += peers.pages_bad;
  if (!tiers.pool) return;
  report.counters.pool_late = tiers.pool->late;
  for (const RemoteHealth& node : tiers.pool->health) {
    ++report.pool_nodes;
    report.pool_ready += node.ready;
    report.counters.pool_failures += node.failures;
  }
}

WorkerCoreOptions Reporting(WorkerCoreOptions options) {
  options.scheduler.report_pages |= options.tell_pages;
  return options;
}

}  // namespace

WorkerCore::WorkerCore(WorkerCoreOptions options, Seconds now)
    : options_(Reporting(std::move(options))) {
  membership_.Expect(options_.gateways);
  membership_.Heard(now);
}
WorkerCore::~WorkerCore() = default;

void WorkerCore::BeNew(NodeId self, PageMemory memory, std::optional<PrefixLoaderOptions> tiers,
                       EventEndpoints events) {
  actions_.clear();
  if (worker_) actions_.emplace_back(DropAction{WorkerKey(self_)});
  membership_.BeNew();
  self_ = self;
  memory_ = std::move(memory);
  events_ = std::move(events);
  pool_ = tiers && tiers->tiers.pool;
  reads_peers_ = tiers && tiers->peers;
  layers_ = tiers && tiers->follow ? std::max(tiers->layers, 1) : 1;
  worker_ = std::make_unique<Worker>(self_, options_.scheduler, options_.times, options_.page);
  if (tiers) worker_->UseTiers(*std::move(tiers));
  tiers_.reset();
  most_used_ = 0;
  news_ = PageNews();
  stepping_ = false;
  dead_.reset();
  actions_.emplace_back(KeepAction{WorkerKey(self_), WorkerRecord(Hello())});
}

HelloMessage WorkerCore::Hello() const {
  return {.node = self_,
          .role = options_.role,
          .name = options_.name,
          .compatibility = options_.compatibility,
          .pages = options_.scheduler.blocks,
          .max_sequences = options_.scheduler.max_sequences,
          .step_tokens = options_.scheduler.max_batched_tokens,
          .context = ContextLimit(options_.scheduler),
          .page_bytes = options_.page.value,
          .data_address = memory_.address,
          .data_descriptor = memory_.descriptor,
          .gateways = static_cast<uint32_t>(membership_.gateways()),
          .events = events_,
          .pool = pool_,
          .layers = static_cast<uint32_t>(layers_),
          .reads_peers = reads_peers_,
          .exported_at = memory_.exported_at};
}

std::vector<WorkerAction> WorkerCore::TakeActions() { return std::exchange(actions_, {}); }

void WorkerCore::Send(LinkId link, ClusterMessage message) {
  actions_.emplace_back(SendAction{link, std::move(message)});
}

void WorkerCore::TellAll(const ClusterMessage& message) {
  for (const LinkId link : membership_.Joined()) Send(link, message);
}

void WorkerCore::Log(LogLevel level, const char* event, Json::Object fields) {
  actions_.emplace_back(LogAction{level, event, std::move(fields)});
}

// ---- Gateways

void WorkerCore::Told(const DirectoryEvent& event) {
  using Kind = DirectoryEvent::Kind;
  if (event.kind != Kind::kPut && event.kind != Kind::kGone) return;
  if (const auto was = announced_at_.find(event.key); was != announced_at_.end()) {
    membership_.Withdraw(was->second);
    announced_at_.erase(was);
  }
  if (event.kind != Kind::kPut) return;
  const auto key = ParseMemberKey(event.key);
  const auto address = ParseGatewayRecord(event.value);
  if (!key || key->kind != MemberKind::kGateway || !address) return;
  announced_at_[event.key] = *address;
  membership_.Announce(*address);
}

void WorkerCore::Connected(LinkId link, bool same_machine) {
  if (parts_until_) return;
  if (!same_machine && memory_.loopback) {
    failure_ = Error{
        Code::kInvalidArgument,
        Format("the gateway is on another machine, or reached as such, and other workers would be "
               "told to write pages to {}; give --data-listen an address of this machine that they "
               "reach, as in --data-listen 10.0.0.2:0",
               memory_.address)};
    return;
  }
  membership_.Connected(link);
  Send(link, Hello());
}

void WorkerCore::Ended(LinkId link, const std::string& why, Seconds now) {
  const std::string gateway = membership_.AddressOf(link);
  if (!membership_.Ended(link, why, now) || parts_until_) return;
  Log(LogLevel::kWarning, "no connection to a gateway", {{"gateway", gateway}, {"why", why}});
}

void WorkerCore::Receive(LinkId link, ClusterMessage message, Seconds now) {
  if (parts_until_) return;
  membership_.Heard(now);
  std::visit([&](auto& each) { On(link, each, now); }, message);
  Settle();
}

void WorkerCore::On(LinkId, RelayMessage& relay, Seconds now) {
  if (relay.to == self_) worker_->Receive(relay.from, std::move(relay.message), now);
}

void WorkerCore::On(LinkId link, WelcomeMessage& welcome, Seconds) {
  membership_.Welcomed(link, welcome.gateway);
  Log(LogLevel::kInfo, "joined",
      {{"gateway", membership_.AddressOf(link)}, {"role", RoleName(options_.role)}});
  Send(link, MakeReport());  // What it did before is not this gateway's.
  if (drain_) Send(link, LeaveMessage{.drain = *drain_});
}

void WorkerCore::On(LinkId, RejectMessage& reject, Seconds) {
  if (reject.dead) {
    dead_ = std::move(reject.reason);
  } else {
    failure_ = Error{Code::kInvalidArgument, "the gateway refuses this worker: " + reject.reason};
  }
}

void WorkerCore::On(LinkId link, PeerUpMessage& up, Seconds) {
  if (membership_.PeerUp(link, up.node)) {
    actions_.emplace_back(
        AddPeerAction{up.node, {std::move(up.data_address), std::move(up.data_descriptor)}});
  } else {
    Send(link, PeerGoneMessage{up.node});
  }
}

void WorkerCore::On(LinkId link, PeerGoneMessage& lost, Seconds) {
  membership_.PeerLost(link, lost.node, lost.loss);
}

// ---- Work

void WorkerCore::WriteDone(uint64_t write, bool ok, Seconds now) {
  worker_->WriteDone(write, ok, now);
  Settle();
}

// The worker hears that a peer is gone only when none of its writes can land any more.
void WorkerCore::Barred(NodeId peer, Seconds now) {
  worker_->PeerGone(peer, now);
  Settle();
}

void WorkerCore::Tick(Seconds now) {
  if (parts_until_) return;
  if (drain_ && (now >= leave_at_ || Idle() || dead_)) return Part(now);
  for (DialAction& dial : membership_.TakeDials(now)) actions_.emplace_back(std::move(dial));
  for (const NodeId peer : membership_.TakeGone(now)) actions_.emplace_back(BarAction{peer});
  worker_->Tick(now);
  Settle();
  Report(now);
}

Seconds WorkerCore::UntilTick(Seconds now) const {
  // While a step runs, what comes and its end wake often enough.
  if (stepping_) return kIdle;
  Seconds next = now + kIdle;
  if (const auto timer = worker_->NextTimer()) next = std::min(next, *timer);
  const PrefixLoader* prefixes = worker_->prefixes();
  if (const auto timer = prefixes ? prefixes->NextTimer() : std::nullopt) {
    next = std::min(next, *timer);
  }
  return std::max(next - now, Seconds(0));
}

ReportMessage WorkerCore::MakeReport() {
  const WorkerStats stats = worker_->stats();
  ReportMessage report = ReportOf(stats);
  if (stats.prefixes) AddLoads(*stats.prefixes, report.counters);
  most_used_ = std::max(most_used_, report.counters.kv_pages_used);
  report.counters.kv_pages_used = most_used_;
  if (tiers_) AddTraffic(*tiers_, report);
  return report;
}

void WorkerCore::Report(Seconds now) {
  if (now - last_report_ < kReport) return;
  last_report_ = now;
  TellAll(MakeReport());
}

// Between Plan and Commit a worker takes messages as at any other time: a step reads only what the
// scheduler keeps for it.
const StepPlan* WorkerCore::BeginStep(Seconds now) {
  if (stepping_ || parts_until_ || !worker_->HasWork()) return nullptr;
  const StepPlan& plan = worker_->Plan(now);
  Settle();
  if (plan.slices.empty()) return nullptr;
  stepping_ = true;
  return &plan;
}

void WorkerCore::EndStep(std::vector<SliceResult> results, Seconds now) {
  stepping_ = false;
  worker_->Commit(std::move(results), now);
  Settle();
}

// Nothing of it is kept where nobody is told.
void WorkerCore::GatherNews() {
  std::vector<PageChange> changes = worker_->TakePageChanges();
  const std::vector<TierEvent> tiers = worker_->TakeTierEvents();
  if (!options_.tell_pages) return;
  news_.Take(std::move(changes));
  news_.Take(tiers);
}

std::vector<KvEvent> WorkerCore::TakeNews(size_t most) {
  GatherNews();
  return news_.Next(most);
}

void WorkerCore::Settle() {
  GatherNews();
  if (parts_until_) return;  // The last word was said.
  for (PageWrite& write : worker_->TakeWrites()) actions_.emplace_back(write);
  for (Outgoing& outgoing : worker_->TakeMessages()) {
    const NodeId gateway = IdOf(outgoing.message).gateway;
    const auto link = outgoing.to == gateway ? membership_.RouteTo(gateway)
                                             : membership_.RouteVia(gateway, outgoing.to);
    if (!link) continue;  // Said again, or a lease ends it.
    Send(*link, RelayMessage{self_, outgoing.to, std::move(outgoing.message)});
  }
  for (const HandoverTimes& times : worker_->TakeHandovers()) {
    Log(LogLevel::kDebug, "handed over",
        {{"request", static_cast<int64_t>(times.id.number)},
         {"attempt", static_cast<int64_t>(times.id.attempt)},
         {"pages", times.pages},
         {"computing_seconds", times.computing.value},
         {"writing_seconds", times.writing.value},
         {"taking_seconds", times.taking.value}});
  }
}

// ---- The end

void WorkerCore::Leave(Seconds drain, Seconds now) {
  if (drain_) return;
  drain_ = std::min(drain, kLongestDrain);
  leave_at_ = now + *drain_;
  TellAll(LeaveMessage{.drain = *drain_});
}

// Gateways that hear it close the connection; those that do not find out by its end.
void WorkerCore::Part(Seconds now) {
  parts_until_ = now + kFarewell;
  TellAll(LeaveMessage{.now = true});
}

bool WorkerCore::Idle() const {
  const WorkerStats stats = worker_->stats();
  return stats.incoming == 0 && stats.outgoing == 0;
}

WorkerFate WorkerCore::Fate(Seconds now) const {
  using Kind = WorkerFate::Kind;
  if (parts_until_) {
    const bool over = now >= *parts_until_ || membership_.Joined().empty();
    return {.kind = over ? Kind::kEnds : Kind::kGoesOn};
  }
  if (failure_) return {.kind = Kind::kEnds, .end = *failure_};
  if (dead_ && !drain_) return {.kind = Kind::kBeginsAnew, .why = *dead_};
  if (std::string why = membership_.Deserted(options_.patience, now); !why.empty()) {
    return {.kind = Kind::kEnds, .end = Error{Code::kUnavailable, std::move(why)}};
  }
  return {};
}

}  // namespace divisi
