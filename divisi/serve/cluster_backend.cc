#include "divisi/serve/cluster_backend.h"

#include <initializer_list>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "divisi/control/frame_connection.h"
#include "divisi/core/format.h"
#include "divisi/core/json.h"
#include "divisi/core/nearest.h"
#include "divisi/core/random.h"

namespace divisi {
namespace {

constexpr Seconds kTick{0.02};

NodeId FreshNode() { return {SystemRandom()}; }

}  // namespace

struct ClusterBackend::State {
  struct Member {
    std::shared_ptr<FrameConnection> connection;  // None: lost
    HelloMessage hello;
    ReportMessage report;
    Seconds lost_at;
  };
  struct Live {
    Engine::EventSink sink;
    Timeline timeline;
    int64_t prompt_tokens = 0;
  };
  // What is to be told once the lock is gone.
  struct Telling {
    Engine::EventSink sink;
    RequestEvent event;
  };

  State(ClusterBackendOptions given, const Clock& c, Logger& l)
      : options(std::move(given)), clock(c), logger(l), dispatcher(self, options.dispatch) {}

  void Accepted(const std::shared_ptr<FrameConnection>& connection);
  void Frame(const std::shared_ptr<FrameConnection>& connection, std::vector<std::byte> bytes);
  void Ended(const std::shared_ptr<FrameConnection>& connection, const std::string& why);
  void Hello(const std::shared_ptr<FrameConnection>& connection, HelloMessage hello);
  void Relay(NodeId from, RelayMessage relay, std::vector<std::byte> bytes);
  Result<std::string> Answer(const std::vector<std::string>& words);
  Result<NodeId> Named(const std::string& name) const;
  std::string StatusText() const;
  void Reject(FrameConnection& connection, const std::string& reason);
  void Remove(NodeId node);
  void SendAll(const ClusterMessage& message, NodeId but);
  void TickNow();
  // Sends what the dispatcher asks for, and turns its events into tellings. With the lock held.
  void Collect();
  void Note(DispatchEvent event);
  // Without the lock, in the loop's thread.
  void Tell();

  const ClusterBackendOptions options;
  const Clock& clock;
  Logger& logger;
  const NodeId self = FreshNode();

  // Guarded by mutex; sinks are called without it.
  mutable std::mutex mutex;
  Dispatcher dispatcher;
  std::map<NodeId, Member> members;
  std::map<const FrameConnection*, NodeId> node_of;
  std::set<NodeId> gone;
  std::optional<Compatibility> expected;
  std::map<uint64_t, Live> live;
  std::vector<Telling> tellings;
  EngineStats counters;
  Seconds pinged;

  FrameLoop loop;  // Last: its thread ends before what it uses goes.
};

// ---- Members

void ClusterBackend::State::Accepted(const std::shared_ptr<FrameConnection>& connection) {
  // The connection holds its callbacks until it ends, and the loop ends before this does.
  const std::weak_ptr<FrameConnection> weak = connection;
  FrameLoop::Start(
      connection,
      [this, weak](std::vector<std::byte> bytes) {
        if (const auto held = weak.lock()) Frame(held, std::move(bytes));
      },
      [this, weak](const std::string& why) {
        if (const auto held = weak.lock()) Ended(held, why);
      });
}

void ClusterBackend::State::Frame(const std::shared_ptr<FrameConnection>& connection,
                                  std::vector<std::byte> bytes) {
  auto message = DecodeClusterMessage(bytes);
  if (!message) return connection->Close(message.error().message);
  {
    const std::lock_guard lock(mutex);
    const auto known = node_of.find(connection.get());
    if (auto* hello = std::get_if<HelloMessage>(&*message)) {
      if (known != node_of.end()) return connection->Close("a second hello");
      Hello(connection, std::move(*hello));
    } else if (const auto* query = std::get_if<QueryMessage>(&*message)) {
      const auto answer = Answer(query->words);
      connection->Send(EncodeClusterMessage(
          AnswerMessage{answer.ok(), answer ? *answer : answer.error().message}));
      return;
    } else if (known == node_of.end()) {
      return connection->Close("no hello came first");
    } else if (auto* relay = std::get_if<RelayMessage>(&*message)) {
      Relay(known->second, std::move(*relay), std::move(bytes));
    } else if (const auto* report = std::get_if<ReportMessage>(&*message)) {
      members.at(known->second).report = *report;
    }
    Collect();
  }
  Tell();
}

void ClusterBackend::State::Reject(FrameConnection& connection, const std::string& reason) {
  logger.Log(LogLevel::kWarning, "worker refused",
             {{"peer", connection.peer()}, {"reason", reason}});
  connection.Send(EncodeClusterMessage(RejectMessage{reason}));
  connection.Close(reason);
}

void ClusterBackend::State::Hello(const std::shared_ptr<FrameConnection>& connection,
                                  HelloMessage hello) {
  if (gone.contains(hello.node)) {
    return Reject(*connection, "this worker was declared dead; it may come back as a new one");
  }
  if (!expected) expected = options.expected.value_or(hello.compatibility);
  if (const auto difference = hello.compatibility.DifferenceFrom(*expected); !difference.empty()) {
    return Reject(*connection, difference);
  }
  const NodeId node = hello.node;
  const bool back = members.contains(node);
  Member& member = members[node];
  if (member.connection) {
    node_of.erase(member.connection.get());
    member.connection->Close("the worker has a newer connection");
  }
  member.connection = connection;
  member.hello = std::move(hello);
  node_of[connection.get()] = node;
  connection->Send(EncodeClusterMessage(WelcomeMessage{self}));
  if (back) return;
  logger.Log(LogLevel::kInfo, "worker joined",
             {{"name", member.hello.name},
              {"role", RoleName(member.hello.role)},
              {"peer", connection->peer()},
              {"pages", member.hello.pages}});
  dispatcher.AddWorker(node, member.hello.role);
  for (const auto& [other, entry] : members) {
    if (other == node) continue;
    connection->Send(EncodeClusterMessage(
        PeerUpMessage{other, entry.hello.data_address, entry.hello.data_descriptor}));
  }
  SendAll(PeerUpMessage{node, member.hello.data_address, member.hello.data_descriptor}, node);
}

void ClusterBackend::State::Relay(NodeId from, RelayMessage relay, std::vector<std::byte> bytes) {
  if (relay.from != from) return;  // Nobody speaks for another.
  if (relay.to == self) return dispatcher.Receive(from, std::move(relay.message), clock.Now());
  const auto to = members.find(relay.to);
  if (to != members.end() && to->second.connection) to->second.connection->Send(std::move(bytes));
}

void ClusterBackend::State::Ended(const std::shared_ptr<FrameConnection>& connection,
                                  const std::string& why) {
  const std::lock_guard lock(mutex);
  const auto known = node_of.find(connection.get());
  if (known == node_of.end()) return;
  const auto member = members.find(known->second);
  node_of.erase(known);
  if (member == members.end() || member->second.connection != connection) return;
  logger.Log(LogLevel::kWarning, "worker lost",
             {{"name", member->second.hello.name}, {"why", why}});
  member->second.connection.reset();
  member->second.lost_at = clock.Now();
}

void ClusterBackend::State::Remove(NodeId node) {
  const auto member = members.find(node);
  logger.Log(LogLevel::kWarning, "worker gone", {{"name", member->second.hello.name}});
  members.erase(member);
  gone.insert(node);
  dispatcher.RemoveWorker(node, clock.Now());
  SendAll(PeerGoneMessage{node}, node);
}

void ClusterBackend::State::SendAll(const ClusterMessage& message, NodeId but) {
  for (const auto& [node, member] : members) {
    if (node != but && member.connection) member.connection->Send(EncodeClusterMessage(message));
  }
}

void ClusterBackend::State::TickNow() {
  {
    const std::lock_guard lock(mutex);
    const Seconds now = clock.Now();
    std::vector<NodeId> lost;
    for (const auto& [node, member] : members) {
      if (!member.connection && now - member.lost_at >= options.grace) lost.push_back(node);
    }
    for (const NodeId node : lost) Remove(node);
    if (now - pinged >= kHeartbeat) {
      pinged = now;
      SendAll(PingMessage{}, NodeId{});
    }
    dispatcher.Tick(now);
    Collect();
  }
  Tell();
}

// ---- Operators

Result<NodeId> ClusterBackend::State::Named(const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& [node, member] : members) {
    if (member.hello.name == name) return node;
    names.push_back(member.hello.name);
  }
  return Error{Code::kNotFound, Format("there is no worker '{}'{}", name, DidYouMean(name, names))};
}

std::string ClusterBackend::State::StatusText() const {
  Json out = Json::MakeObject();
  out.Set("waiting", dispatcher.waiting());
  out.Set("live", dispatcher.live());
  Json workers = Json::MakeArray();
  for (const WorkerLoad& load : dispatcher.loads()) {
    const Member& member = members.at(load.node);
    const ReportMessage& report = member.report;
    Json worker = Json::MakeObject();
    worker.Set("name", member.hello.name);
    worker.Set("role", RoleName(load.role));
    worker.Set("connected", member.connection != nullptr);
    worker.Set("draining", load.draining);
    worker.Set("requests", load.requests);
    for (const auto& [key, value] : std::initializer_list<std::pair<const char*, int64_t>>{
             {"running", report.running},
             {"waiting", report.waiting},
             {"held", report.held},
             {"reserved", report.reserved},
             {"stopping", report.stopping},
             {"pages_used", report.blocks_used},
             {"pages_total", report.blocks_total},
             {"prefill_tokens", report.prefill_tokens},
             {"decode_tokens", report.decode_tokens},
             {"pages_written", report.pages_written},
             {"handovers", report.handovers},
             {"expired_leases", report.expired_leases}}) {
      worker.Set(key, value);
    }
    workers.Append(std::move(worker));
  }
  out.Set("workers", std::move(workers));
  return out.Dump();
}

Result<std::string> ClusterBackend::State::Answer(const std::vector<std::string>& words) {
  if (words.size() == 1 && words[0] == "status") return StatusText();
  if (words.size() == 2 && words[0] == "drain") {
    ASSIGN_OR_RETURN(const NodeId node, Named(words[1]));
    dispatcher.Drain(node);
    return StatusText();
  }
  if (words.size() == 3 && words[0] == "role") {
    ASSIGN_OR_RETURN(const NodeId node, Named(words[1]));
    for (const WorkerRole role :
         {WorkerRole::kReplica, WorkerRole::kPrefill, WorkerRole::kDecode}) {
      if (words[2] != RoleName(role)) continue;
      // Any worker can do each part: what it has under the old role it ends.
      members.at(node).hello.role = role;
      dispatcher.AddWorker(node, role);
      return StatusText();
    }
    return Error{Code::kInvalidArgument,
                 Format("'{}' is no role; there are replica, prefill and decode", words[2])};
  }
  return Error{Code::kInvalidArgument, "expected status, drain NAME, or role NAME ROLE"};
}

// ---- Requests

void ClusterBackend::State::Collect() {
  for (Outgoing& outgoing : dispatcher.TakeMessages()) {
    const auto to = members.find(outgoing.to);
    if (to == members.end() || !to->second.connection) continue;  // Its lease, or a retry, ends it.
    to->second.connection->Send(
        EncodeClusterMessage(RelayMessage{self, outgoing.to, std::move(outgoing.message)}));
  }
  for (DispatchEvent& event : dispatcher.TakeEvents()) Note(std::move(event));
}

void ClusterBackend::State::Note(DispatchEvent event) {
  const auto found = live.find(event.request);
  if (found == live.end()) return;
  Live& request = found->second;
  const Seconds now = clock.Now();
  Timeline& timeline = request.timeline;
  if (!event.tokens.empty() && timeline.first_token.value == 0) {
    timeline.first_token = now;
    counters.prompt_tokens += request.prompt_tokens;
  }
  counters.generated_tokens += static_cast<int64_t>(event.tokens.size());
  if (event.finish) {
    timeline.finished = now;
    ++counters.finished[static_cast<size_t>(*event.finish)];
  }
  Telling telling{request.sink,
                  {.request = event.request,
                   .time = now,
                   .prompt_scores = std::move(event.prompt_scores),
                   .tokens = std::move(event.tokens),
                   .finish = event.finish,
                   .error = std::move(event.error),
                   .timeline = timeline}};
  if (event.finish) live.erase(found);
  tellings.push_back(std::move(telling));
}

void ClusterBackend::State::Tell() {
  std::vector<Telling> told;
  {
    const std::lock_guard lock(mutex);
    told = std::exchange(tellings, {});
  }
  for (Telling& telling : told) telling.sink(std::move(telling.event));
}

// ---- The public face

ClusterBackend::ClusterBackend(ClusterBackendOptions options, const Clock& clock, Logger& logger)
    : state_(std::make_unique<State>(std::move(options), clock, logger)) {
  state_->loop.Every(kTick, [state = state_.get()] { state->TickNow(); });
}
ClusterBackend::~ClusterBackend() = default;

Result<int> ClusterBackend::Listen(const std::string& host, int port) {
  return state_->loop.Listen(
      host, port, [state = state_.get()](auto connection) { state->Accepted(connection); });
}

Result<RequestId> ClusterBackend::Submit(Request request, Engine::EventSink sink) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  const auto tokens = static_cast<int64_t>(request.prompt.size());
  const Seconds now = s.clock.Now();
  ASSIGN_OR_RETURN(const uint64_t number, s.dispatcher.Submit(std::move(request), now));
  s.live[number] = {.sink = std::move(sink),
                    .timeline = {.arrived = now, .scheduled = now},
                    .prompt_tokens = tokens};
  s.Collect();
  if (!s.tellings.empty()) s.loop.Post([&s] { s.Tell(); });
  return number;
}

void ClusterBackend::Cancel(RequestId id) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  s.dispatcher.Cancel(id, s.clock.Now());
  s.Note({.request = id, .finish = FinishReason::kCancelled});
  s.Collect();
  s.loop.Post([&s] { s.Tell(); });
}

EngineStats ClusterBackend::stats() const {
  const State& s = *state_;
  const std::lock_guard lock(s.mutex);
  EngineStats stats = s.counters;
  stats.queued = s.dispatcher.waiting();
  stats.scheduler.waiting = stats.queued;
  for (const auto& [node, member] : s.members) {
    const ReportMessage& report = member.report;
    stats.scheduler.running += report.running;
    stats.scheduler.held += report.held;
    stats.scheduler.reserved += report.reserved;
    stats.scheduler.blocks_total += report.blocks_total;
    stats.scheduler.blocks_used += report.blocks_used;
    stats.prefill_tokens += report.prefill_tokens;
    stats.decode_tokens += report.decode_tokens;
  }
  return stats;
}

}  // namespace divisi
