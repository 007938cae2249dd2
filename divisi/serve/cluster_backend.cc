#include "divisi/serve/cluster_backend.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "divisi/control/member_keys.h"
#include "divisi/control/route_prefix.h"
#include "divisi/core/random.h"
#include "divisi/serve/cluster_metrics.h"
#include "divisi/serve/cluster_query.h"
#include "divisi/serve/cluster_requests.h"
#include "divisi/serve/cluster_totals.h"
#include "divisi/serve/directory_status.h"
#include "divisi/serve/route_query.h"

namespace divisi {
namespace {

constexpr Seconds kTick{0.02};
constexpr Seconds kLookAfter{0.5};

}  // namespace

struct ClusterBackend::State {
  State(GatewayCoreOptions options, const Clock& c, Logger& l, bool all)
      : clock(c), logger(l), all_routes(all), core(NodeId{SystemRandom()}, std::move(options)) {
    if (core.pages() == nullptr) return;
    events = std::make_unique<ClusterEvents>(clock, logger,
                                             [this] { loop.Post([this] { TakeEvents(); }); });
  }

  void Accepted(Result<std::shared_ptr<FrameConnection>> accepted);
  void Frame(LinkId link, const std::vector<std::byte>& bytes);
  void Ended(LinkId link, const std::string& why);
  void TickNow();
  void Told(const DirectoryEvent& event);
  void TakeEvents();

  // With the lock held.
  void Send(LinkId link, const ClusterMessage& message);
  void Close(LinkId link, const std::string& why);
  void Do(const SendAction& action) { Send(action.link, action.message); }
  void Do(const CloseAction& action) { Close(action.link, action.why); }
  void Do(DirectoryAction& action);
  void Do(const ReportedAction& action);
  void Do(const QueryAction& action);
  void Do(const NoteAction& action);
  void Do(const FollowAction& action) {
    if (events) events->Follow(action);
  }
  void Do(const UnfollowAction& action) {
    if (events) events->Unfollow(action.node);
  }
  // Does what the core asks for, and turns its clients' events into tellings.
  void Collect();

  // Without the lock, in the loop's thread.
  void Tell();
  // Without the lock, which is not held while they are computed.
  std::vector<BlockKey> KeysOf(const Request& request);

  const Clock& clock;
  Logger& logger;
  const bool all_routes;

  // Guarded by mutex; sinks are called without it.
  mutable std::mutex mutex;
  GatewayCore core;
  ClusterRequests requests;
  ClusterTotals totals;
  RouteLog routes;
  std::map<LinkId, std::shared_ptr<FrameConnection>> links;
  LinkId last_link = 0;
  Seconds stores_seen;

  // Guarded by mutex; taken away before the loop ends.
  std::unique_ptr<EtcdDirectory> directory;
  std::unique_ptr<ClusterEvents> events;  // Where there is a directory of pages

  std::unique_ptr<ForeignEngines> foreign;  // Where there are some

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
  (*accepted)->Start([this, link](const std::vector<std::byte>& bytes) { Frame(link, bytes); },
                     [this, link](const std::string& why) { Ended(link, why); });
}

void ClusterBackend::State::Frame(LinkId link, const std::vector<std::byte>& bytes) {
  auto message = DecodeClusterMessage(bytes);
  {
    const std::lock_guard lock(mutex);
    if (!message) return Close(link, message.error().message);
    core.Receive(link, *std::move(message), clock.Now());
    Collect();
  }
  Tell();
}

void ClusterBackend::State::Ended(LinkId link, const std::string& why) {
  {
    const std::lock_guard lock(mutex);
    links.erase(link);
    core.Ended(link, why, clock.Now());
    Collect();
  }
  Tell();
}

void ClusterBackend::State::TickNow() {
  ForeignEngines* others = nullptr;
  {
    const std::lock_guard lock(mutex);
    others = foreign.get();
    core.Tick(clock.Now());
    if (events && clock.Now() - stores_seen >= kLookAfter) {
      stores_seen = clock.Now();
      events->LookAfterStores(core, stores_seen);
    }
    Collect();
  }
  if (others != nullptr) others->Absorb(clock.Now());
  Tell();
}

void ClusterBackend::State::Told(const DirectoryEvent& event) {
  {
    const std::lock_guard lock(mutex);
    core.Told(event, clock.Now());
    Collect();
  }
  Tell();
}

// Some at a time: connections have their turn between.
void ClusterBackend::State::TakeEvents() {
  const std::lock_guard lock(mutex);
  if (!events || !events->Tell(core, clock.Now())) return;
  loop.Post([this] { TakeEvents(); });
}

void ClusterBackend::State::Send(LinkId link, const ClusterMessage& message) {
  const auto to = links.find(link);
  if (to == links.end()) return;
  if (std::holds_alternative<WelcomeMessage>(message)) to->second->Welcome();
  to->second->Send(EncodeClusterMessage(message));
}

void ClusterBackend::State::Close(LinkId link, const std::string& why) {
  if (const auto at = links.find(link); at != links.end()) at->second->Close(why);
}

// Before Join nothing is asked of it but what is asked again once it is within reach.
void ClusterBackend::State::Do(DirectoryAction& action) {
  if (directory) directory->Do(std::move(action));
}

void ClusterBackend::State::Do(const ReportedAction& action) {
  const auto& members = core.registry().members();
  const auto member = members.find(action.node);
  if (member == members.end() || !member->second.report) return;
  totals.Take(member->second.hello, member->second.report->counters);
  totals.ForgetGone(core.registry());
}

void ClusterBackend::State::Do(const QueryAction& action) {
  const Seconds now = clock.Now();
  const auto answer =
      AsksForRoutes(action.words)
          ? AnswerRoutes(action.words, core, routes, now)
          : AnswerQuery(action.words, core, now, events ? events->stats() : ClusterEventStats());
  Send(action.link, AnswerMessage{answer.ok(), answer ? *answer : answer.error().message});
}

void ClusterBackend::State::Do(const NoteAction& action) {
  Json::Object fields = {{"name", action.worker}};
  if (!action.why.empty()) fields.emplace_back("why", action.why);
  logger.Log(LogLevel::kInfo, action.event, std::move(fields));
}

void ClusterBackend::State::Collect() {
  std::vector<GatewayAction> actions = core.TakeActions();
  for (; !actions.empty(); actions = core.TakeActions()) {  // A query asks for more.
    for (GatewayAction& action : actions) {
      std::visit([this](auto& each) { Do(each); }, action);
    }
  }
  const auto name = [this](NodeId node) { return WorkerName(core, node); };
  for (RouteNote& note : core.TakeChoices()) {
    requests.NoteRoute(note.request, note.choice.Text(name, all_routes ? SIZE_MAX : 1));
    routes.Add(std::move(note));
  }
  for (DispatchEvent& event : core.TakeEvents()) requests.Take(std::move(event), clock.Now());
}

void ClusterBackend::State::Tell() {
  std::vector<ClusterRequests::Telling> told;
  {
    const std::lock_guard lock(mutex);
    told = requests.TakeTellings();
  }
  for (ClusterRequests::Telling& telling : told) telling.sink(std::move(telling.event));
}

std::vector<BlockKey> ClusterBackend::State::KeysOf(const Request& request) {
  std::optional<KeySpace> space;
  {
    const std::lock_guard lock(mutex);
    space = core.PageSpace();
  }
  return space ? SharedPromptKeys(*std::move(space), request) : std::vector<BlockKey>();
}

ClusterBackend::ClusterBackend(GatewayCoreOptions options, const Clock& clock, Logger& logger,
                               bool all_routes)
    : state_(std::make_unique<State>(std::move(options), clock, logger, all_routes)) {
  state_->loop.Every(kTick, [state = state_.get()] { state->TickNow(); });
}
ClusterBackend::~ClusterBackend() {
  // The loop goes on asking the directory for things, and what that tells goes to the loop: it ends
  // first, out of the other's sight.
  std::unique_ptr<EtcdDirectory> directory;
  std::unique_ptr<ClusterEvents> events;
  {
    const std::lock_guard lock(state_->mutex);
    directory = std::move(state_->directory);
    events = std::move(state_->events);
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
  directory->Keep(GatewayKey(s.core.self()), GatewayRecord(address));
  const std::lock_guard lock(s.mutex);
  s.directory = std::move(directory);
  s.directory->Start(
      [&s](const DirectoryEvent& event) { s.loop.Post([&s, event] { s.Told(event); }); });
  return {};
}

Result<void> ClusterBackend::FollowStores(std::vector<PoolStoreEvents> stores) {
  const std::lock_guard lock(state_->mutex);
  if (state_->events) return state_->events->FollowStores(std::move(stores));
  return Error{
      Code::kInvalidArgument,
      "there is no directory for what the stores hold; give --kv-directory-pages more than 0"};
}

Result<void> ClusterBackend::FollowForeign(std::vector<ForeignEngine> engines) {
  State& s = *state_;
  ASSIGN_OR_RETURN(auto foreign, ForeignEngines::Follow(std::move(engines), s.clock, s.logger));
  const std::lock_guard lock(s.mutex);
  s.foreign = std::move(foreign);
  return {};
}

Result<RequestId> ClusterBackend::Submit(Request request, Engine::EventSink sink) {
  State& s = *state_;
  std::vector<BlockKey> pages = s.KeysOf(request);
  std::vector<ForeignPrefix> elsewhere;
  if (s.foreign) elsewhere = s.foreign->Holding(request);
  const std::lock_guard lock(s.mutex);
  const auto tokens = static_cast<int64_t>(request.prompt.size());
  const Seconds now = s.clock.Now();
  ASSIGN_OR_RETURN(const uint64_t number, s.core.Submit(std::move(request), now, std::move(pages)));
  if (!elsewhere.empty()) s.routes.HeldElsewhere(number, std::move(elsewhere));
  s.requests.Begin(number, std::move(sink), tokens, now);
  s.Collect();
  if (s.requests.HasTellings()) s.loop.Post([&s] { s.Tell(); });
  return number;
}

void ClusterBackend::Cancel(RequestId id) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  s.core.Cancel(id, s.clock.Now());
  s.requests.Take({.request = id, .finish = FinishReason::kCancelled}, s.clock.Now());
  s.Collect();
  s.loop.Post([&s] { s.Tell(); });
}

void ClusterBackend::Label(RequestId id, std::string_view label) {
  const std::lock_guard lock(state_->mutex);
  state_->routes.Label(id, label);
}

EngineStats ClusterBackend::stats() const {
  const State& s = *state_;
  const std::lock_guard lock(s.mutex);
  EngineStats stats = s.requests.counters();
  stats.queued = s.core.dispatcher().waiting();
  stats.scheduler.waiting = stats.queued;
  for (const auto& [node, member] : s.core.registry().members()) {
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
  const auto workers = s.core.dispatcher().loads(s.clock.Now());
  // A prefill worker alone ends no request.
  const bool any = std::ranges::any_of(workers, [](const WorkerLoad& worker) {
    return worker.role != WorkerRole::kPrefill && !worker.draining;
  });
  return any ? std::string() : std::string("no worker is ready; retry later");
}

std::string ClusterBackend::Metrics(std::string_view labels) const {
  const State& s = *state_;
  const std::lock_guard lock(s.mutex);
  std::string text =
      ClusterMetrics(s.totals, s.core.registry(), s.core.dispatcher(), s.clock.Now(), labels);
  return text +
         DirectoryMetrics(s.core, s.events ? s.events->stats() : ClusterEventStats(), labels) +
         (s.foreign ? s.foreign->Metrics(labels) : std::string());
}

}  // namespace divisi
