#include "divisi/serve/cluster_backend.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "divisi/control/member_keys.h"
#include "divisi/core/random.h"
#include "divisi/serve/cluster_metrics.h"
#include "divisi/serve/cluster_query.h"
#include "divisi/serve/cluster_requests.h"
#include "divisi/serve/cluster_totals.h"

namespace divisi {
namespace {

constexpr Seconds kTick{0.02};

}  // namespace

struct ClusterBackend::State {
  State(ClusterBackendOptions options, const Clock& c, Logger& l)
      : clock(c),
        logger(l),
        dispatcher(self, options.dispatch),
        registry(self, std::move(options.registry)) {}

  void Accepted(Result<std::shared_ptr<FrameConnection>> accepted);
  void Frame(LinkId link, std::vector<std::byte> bytes);
  void Ended(LinkId link, const std::string& why);
  void TickNow();
  void Told(const DirectoryEvent& event);

  // With the lock held.
  void Take(const DirectoryEvent& event);
  void Relay(NodeId from, RelayMessage relay, std::vector<std::byte> bytes);
  void Send(LinkId link, const ClusterMessage& message);
  void Close(LinkId link, const std::string& why);
  void Do(SendAction& action) { Send(action.link, action.message); }
  void Do(CloseAction& action) { Close(action.link, action.why); }
  void Do(JoinedAction& action);
  void Do(DrainAction& action) { dispatcher.Drain(action.node, clock.Now(), action.within); }
  void Do(LostAction& action) { dispatcher.RemoveWorker(action.node, clock.Now()); }
  void Do(VouchAction& action);
  void Do(BuryAction& action);
  void Reported(NodeId from, const ReportMessage& report);
  void Do(NoteAction& action);
  // Does what registry and dispatcher ask for, and turns the latter's events into tellings.
  void Collect();

  // Without the lock, in the loop's thread.
  void Tell();

  const Clock& clock;
  Logger& logger;
  const NodeId self{SystemRandom()};

  // Guarded by mutex; sinks are called without it.
  mutable std::mutex mutex;
  Dispatcher dispatcher;
  Registry registry;
  ClusterRequests requests;
  ClusterTotals totals;
  std::map<LinkId, std::shared_ptr<FrameConnection>> links;
  LinkId last_link = 0;

  std::unique_ptr<EtcdDirectory> directory;  // Guarded by mutex; taken away before the loop ends.

  FrameLoop loop;  // Last: its thread ends before what it uses goes.
};

void ClusterBackend::State::Accepted(Result<std::shared_ptr<FrameConnection>> accepted) {
  if (!accepted) {
    return logger.Log(LogLevel::kWarning, "control connection refused",
                      {{"why", accepted.error().message}});
  }
  LinkId link = 0;
  {
    const std::lock_guard lock(mutex);
    link = ++last_link;
    links[link] = *accepted;
  }
  // The connection holds its callbacks until it ends, and the loop ends before this does.
  (*accepted)->Start([this, link](std::vector<std::byte> bytes) { Frame(link, std::move(bytes)); },
                     [this, link](const std::string& why) { Ended(link, why); });
}

void ClusterBackend::State::Frame(LinkId link, std::vector<std::byte> bytes) {
  auto message = DecodeClusterMessage(bytes);
  {
    const std::lock_guard lock(mutex);
    if (!message) return Close(link, message.error().message);
    const auto from = registry.NodeOf(link);
    if (auto* hello = std::get_if<HelloMessage>(&*message)) {
      registry.Hello(link, std::move(*hello), clock.Now());
      if (registry.NodeOf(link)) links.at(link)->Welcome();
    } else if (const auto* query = std::get_if<QueryMessage>(&*message)) {
      const auto answer = AnswerQuery(query->words, dispatcher, registry, clock.Now());
      Send(link, AnswerMessage{answer.ok(), answer ? *answer : answer.error().message});
    } else if (std::holds_alternative<PingMessage>(*message)) {
      // It is heard.
    } else if (!from) {
      Close(link, "no hello came first");
    } else if (auto* relay = std::get_if<RelayMessage>(&*message)) {
      Relay(*from, std::move(*relay), std::move(bytes));
    } else if (const auto* report = std::get_if<ReportMessage>(&*message)) {
      registry.Report(link, *report);
      Reported(*from, *report);
    } else if (const auto* leave = std::get_if<LeaveMessage>(&*message)) {
      registry.Leave(link, *leave);
    } else if (const auto* gone = std::get_if<PeerGoneMessage>(&*message)) {
      registry.Barred(gone->node);
    }
    Collect();
  }
  Tell();
}

void ClusterBackend::State::Ended(LinkId link, const std::string& why) {
  {
    const std::lock_guard lock(mutex);
    links.erase(link);
    registry.Ended(link, why, clock.Now());
    Collect();
  }
  Tell();
}

void ClusterBackend::State::TickNow() {
  {
    const std::lock_guard lock(mutex);
    registry.Tick(clock.Now());
    dispatcher.Tick(clock.Now());
    Collect();
  }
  Tell();
}

void ClusterBackend::State::Relay(NodeId from, RelayMessage relay, std::vector<std::byte> bytes) {
  if (relay.from != from) return;  // Nobody speaks for another.
  if (relay.to == self) return dispatcher.Receive(from, std::move(relay.message), clock.Now());
  const auto link = registry.LinkOf(relay.to);
  if (!link) return;
  if (const auto to = links.find(*link); to != links.end()) to->second->Send(std::move(bytes));
}

void ClusterBackend::State::Told(const DirectoryEvent& event) {
  {
    const std::lock_guard lock(mutex);
    Take(event);
    Collect();
  }
  Tell();
}

void ClusterBackend::State::Take(const DirectoryEvent& event) {
  using Kind = DirectoryEvent::Kind;
  if (event.kind == Kind::kUp) return registry.DirectoryUp(clock.Now());
  if (event.kind == Kind::kDown) return registry.DirectoryDown(clock.Now());
  const auto key = ParseMemberKey(event.key);
  if (!key) return;
  const bool there = event.kind == Kind::kPut;
  if (key->kind == MemberKind::kWorker) {
    return there ? registry.Leased(key->node) : registry.LeaseEnded(key->node);
  }
  if (key->kind == MemberKind::kDead && there) registry.Declared(key->node);
}

void ClusterBackend::State::Do(VouchAction& action) {
  if (!directory) return;
  const std::string key = ReachKey(action.node, self);
  if (action.reaches) return directory->Keep(key, "");
  directory->Drop(key);
}

void ClusterBackend::State::Do(BuryAction& action) {
  if (!directory) return;
  directory->Declare(DeadKey(action.node), WorkerKey(action.node), ReachPrefix(action.node));
}

void ClusterBackend::State::Send(LinkId link, const ClusterMessage& message) {
  if (const auto to = links.find(link); to != links.end()) {
    to->second->Send(EncodeClusterMessage(message));
  }
}

void ClusterBackend::State::Close(LinkId link, const std::string& why) {
  if (const auto at = links.find(link); at != links.end()) at->second->Close(why);
}

void ClusterBackend::State::Do(JoinedAction& action) {
  const auto member = registry.members().find(action.node);
  if (member == registry.members().end()) return;  // And gone again
  const HelloMessage& hello = member->second.hello;
  dispatcher.AddWorker(action.node, action.role,
                       {.max_sequences = hello.max_sequences,
                        .step_tokens = hello.step_tokens,
                        .page = Bytes(hello.page_bytes)});
}

void ClusterBackend::State::Reported(NodeId from, const ReportMessage& report) {
  dispatcher.Report(from, report.rates, report.prompt_backlog, clock.Now());
  totals.Take(registry.members().at(from).hello, report.counters);
  totals.ForgetGone(registry);
}

void ClusterBackend::State::Do(NoteAction& action) {
  Json::Object fields = {{"name", action.worker}};
  if (!action.why.empty()) fields.emplace_back("why", action.why);
  logger.Log(LogLevel::kInfo, action.event, std::move(fields));
}

void ClusterBackend::State::Collect() {
  for (RegistryAction& action : registry.TakeActions()) {
    std::visit([this](auto& each) { Do(each); }, action);
  }
  for (Outgoing& outgoing : dispatcher.TakeMessages()) {
    const auto link = registry.LinkOf(outgoing.to);
    if (!link) continue;  // Its lease, or a retry, ends it.
    Send(*link, RelayMessage{self, outgoing.to, std::move(outgoing.message)});
  }
  const auto name = [this](NodeId node) {
    const auto member = registry.members().find(node);
    return member == registry.members().end() ? "gone" : member->second.hello.name;
  };
  for (const RouteNote& note : dispatcher.TakeChoices()) {
    requests.NoteRoute(note.request, note.choice.Text(name));
  }
  for (DispatchEvent& event : dispatcher.TakeEvents()) requests.Take(std::move(event), clock.Now());
}

void ClusterBackend::State::Tell() {
  std::vector<ClusterRequests::Telling> told;
  {
    const std::lock_guard lock(mutex);
    told = requests.TakeTellings();
  }
  for (ClusterRequests::Telling& telling : told) telling.sink(std::move(telling.event));
}

ClusterBackend::ClusterBackend(ClusterBackendOptions options, const Clock& clock, Logger& logger)
    : state_(std::make_unique<State>(std::move(options), clock, logger)) {
  state_->loop.Every(kTick, [state = state_.get()] { state->TickNow(); });
}
ClusterBackend::~ClusterBackend() {
  // The loop goes on asking the directory for things, and what that tells goes to the loop: it ends
  // first, out of the other's sight.
  std::unique_ptr<EtcdDirectory> directory;
  {
    const std::lock_guard lock(state_->mutex);
    directory = std::move(state_->directory);
  }
}

Result<void> ClusterBackend::UseTls(const TlsFiles& files) { return state_->loop.UseTls(files); }

Result<int> ClusterBackend::Listen(const std::string& host, int port) {
  return state_->loop.Listen(
      host, port, [state = state_.get()](auto accepted) { state->Accepted(std::move(accepted)); });
}

Result<void> ClusterBackend::Join(const EtcdOptions& etcd, const GatewayAddress& address) {
  State& s = *state_;
  ASSIGN_OR_RETURN(auto directory, EtcdDirectory::Open(etcd, "", s.clock, s.logger));
  directory->Keep(GatewayKey(s.self), GatewayRecord(address));
  const std::lock_guard lock(s.mutex);
  s.directory = std::move(directory);
  s.directory->Start(
      [&s](const DirectoryEvent& event) { s.loop.Post([&s, event] { s.Told(event); }); });
  return {};
}

Result<RequestId> ClusterBackend::Submit(Request request, Engine::EventSink sink) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  const auto tokens = static_cast<int64_t>(request.prompt.size());
  const Seconds now = s.clock.Now();
  ASSIGN_OR_RETURN(const uint64_t number, s.dispatcher.Submit(std::move(request), now));
  s.requests.Begin(number, std::move(sink), tokens, now);
  s.Collect();
  if (s.requests.HasTellings()) s.loop.Post([&s] { s.Tell(); });
  return number;
}

void ClusterBackend::Cancel(RequestId id) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  s.dispatcher.Cancel(id, s.clock.Now());
  s.requests.Take({.request = id, .finish = FinishReason::kCancelled}, s.clock.Now());
  s.Collect();
  s.loop.Post([&s] { s.Tell(); });
}

EngineStats ClusterBackend::stats() const {
  const State& s = *state_;
  const std::lock_guard lock(s.mutex);
  EngineStats stats = s.requests.counters();
  stats.queued = s.dispatcher.waiting();
  stats.scheduler.waiting = stats.queued;
  for (const auto& [node, member] : s.registry.members()) {
    if (!member.report) continue;
    stats.scheduler.running += member.report->running;
    stats.scheduler.held += member.report->held;
    stats.scheduler.reserved += member.report->reserved;
    stats.scheduler.blocks_total += member.report->blocks_total;
    stats.scheduler.blocks_used += member.report->blocks_used;
  }
  const WorkerCounters sum = s.totals.Sum();
  stats.prefill_tokens = sum.prefill_tokens;
  stats.decode_tokens = sum.decode_tokens;
  stats.scheduler.prefix_queried_tokens = sum.queried_tokens;
  stats.scheduler.prefix_hit_tokens = sum.cached_tokens;
  stats.scheduler.preemptions = sum.preemptions;
  return stats;
}

std::string ClusterBackend::NotReady() const {
  const State& s = *state_;
  const std::lock_guard lock(s.mutex);
  const auto workers = s.dispatcher.loads(s.clock.Now());
  // A prefill worker alone ends no request.
  const bool any = std::ranges::any_of(workers, [](const WorkerLoad& worker) {
    return worker.role != WorkerRole::kPrefill && !worker.draining;
  });
  return any ? std::string() : std::string("no worker is ready; retry later");
}

std::string ClusterBackend::Metrics(std::string_view labels) const {
  const State& s = *state_;
  const std::lock_guard lock(s.mutex);
  return ClusterMetrics(s.totals, s.registry, s.dispatcher, s.clock.Now(), labels);
}

}  // namespace divisi
