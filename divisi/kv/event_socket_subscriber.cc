// The consumer's side of event_socket.h.
#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>

#include "divisi/core/format.h"
#include "divisi/kv/event_socket.h"
#include "divisi/kv/event_socket_bell.h"
#include "divisi/kv/event_socket_frames.h"
#include "divisi/kv/event_socket_zmq.h"

namespace divisi {
namespace {

constexpr int kHighWater = 100'000;
constexpr Seconds kSleep{0.1};  // Also how old a status may be.
// Messages of one source before the others have their turn.
constexpr int kMessagesAtATime = 256;

// What an update takes until it is taken, in blocks: hashes of up to 64 bytes, 16 tokens, or 64
// bytes of what is unknown; and 1 for itself and each event.
struct Blocks {
  size_t operator()(const StoredEvent& event) const {
    const size_t extras = event.extra_keys ? event.extra_keys->size() : 0;
    return event.hashes.size() + event.tokens.size() / kBlockTokens + extras + Of(event.more);
  }
  size_t operator()(const RemovedEvent& event) const {
    return event.hashes.size() + Of(event.more);
  }
  size_t operator()(const ClearedEvent& event) const { return Of(event.more); }
  size_t operator()(const OtherEvent& event) const { return event.value.size() / kMaxHashBytes; }

  static size_t Of(const std::vector<EventField>& fields) {
    size_t blocks = 0;
    for (const EventField& field : fields) blocks += 1 + field.value.size() / kMaxHashBytes;
    return blocks;
  }
};

size_t BlocksOf(const EventUpdate& update) {
  size_t blocks = 1 + update.events.size();
  for (const KvEvent& event : update.events) blocks += std::visit(Blocks(), event);
  return blocks;
}

// One publisher that is followed.
struct Followed {
  EventSource source;
  EventStream stream;
  std::unique_ptr<ZmqSocket> live;
  std::unique_ptr<ZmqSocket> answers;  // Of the last ask; a new one takes a new socket.
  uint64_t ask = 0;
  uint64_t malformed = 0;
};

Result<void> CheckEndpoint(const std::string& endpoint) {
  const bool tcp = EndpointPort(endpoint).value_or(0) > 0 && endpoint.find('*') == endpoint.npos;
  const bool ipc = endpoint.starts_with("ipc://") && endpoint.size() > 6;
  if (tcp || ipc) return {};
  return Error{Code::kInvalidArgument,
               Format("'{}' is no publisher's endpoint; one looks like tcp://HOST:PORT or "
                      "ipc:///PATH",
                      endpoint)};
}

}  // namespace

// The thread owns the followed sources and their sockets.
struct EventSubscriber::State {
  State(const Clock& its_clock, Logger& its_logger, std::function<void()> its_wake)
      : clock(its_clock), logger(its_logger), wake(std::move(its_wake)) {}

  void Loop() {
    while (TakeCommands()) {
      Wait();
      bell.Hear();
      if (full) continue;
      for (auto& [id, followed] : sources) Serve(id, *followed);
      Report();
    }
  }

  // False: the end.
  bool TakeCommands() {
    std::vector<std::pair<SourceId, EventSource>> added;
    std::vector<SourceId> dropped;
    {
      const std::lock_guard lock(mutex);
      if (stop) return false;
      added.swap(to_follow);
      dropped.swap(to_drop);
      full = queued >= kMostQueued;
    }
    for (auto& [id, source] : added) Begin(id, std::move(source));
    for (const SourceId id : dropped) sources.erase(id);
    return true;
  }

  void Begin(SourceId id, EventSource source) {
    EventStreamOptions options = source.stream;
    options.replay = !source.replay_endpoint.empty();
    auto followed = std::make_unique<Followed>(
        Followed{std::move(source), EventStream(options), nullptr, nullptr, 0, 0});
    const auto opened = Connect(*followed);
    if (!opened) {
      logger.Log(LogLevel::kError, "KV events are not followed",
                 {{"endpoint", followed->source.endpoint}, {"why", opened.error().message}});
      return;
    }
    sources.emplace(id, std::move(followed));
  }

  Result<void> Connect(Followed& followed) {
    ASSIGN_OR_RETURN(followed.live, ZmqSocket::Open(context, ZmqSocket::Kind::kSubscribe,
                                                    {kHighWater, kMaxBatchBytes}));
    RETURN_IF_ERROR(followed.live->Monitor());
    followed.live->Subscribe(followed.source.topic);
    return followed.live->Connect(followed.source.endpoint);
  }

  void Wait() {
    std::vector<void*> sockets;
    Seconds pause = kSleep;
    if (!full) {
      const Seconds now = clock.Now();
      for (const auto& [id, followed] : sources) {
        sockets.push_back(followed->live->get());
        sockets.push_back(followed->live->monitor());
        if (followed->answers) sockets.push_back(followed->answers->get());
        pause = std::clamp(followed->stream.NextTick() - now, Seconds{0}, pause);
      }
    }
    ZmqWait(sockets, bell.fd(), pause);
  }

  void Serve(SourceId id, Followed& followed) {
    const Seconds now = clock.Now();
    while (const auto change = followed.live->NextChange()) {
      const bool connected = *change == ZmqSocket::Change::kConnected;
      connected ? followed.stream.Connected(now) : followed.stream.Disconnected(now);
    }
    ReadAnswers(followed, now);
    size_t bytes = 0;
    for (int i = 0; i < kMessagesAtATime && bytes < kMaxBatchBytes; ++i) {
      const auto frames = followed.live->Receive();
      if (!frames) break;
      const auto message = ReadLive(*frames);
      if (message) {
        bytes += message->payload.size();
        followed.stream.Live(message->sequence, message->payload, now);
      } else {
        ++followed.malformed;
      }
    }
    followed.stream.Tick(now);
    Ask(followed);
    Leave(id, followed);
  }

  void ReadAnswers(Followed& followed, Seconds now) {
    size_t bytes = 0;
    for (int i = 0; followed.answers && i < kMessagesAtATime && bytes < kMaxBatchBytes; ++i) {
      const auto frames = followed.answers->Receive();
      if (!frames) return;
      const auto message = ReadAnswer(*frames);
      if (!message) {
        ++followed.malformed;
      } else if (message->sequence != kEndSequence) {
        bytes += message->payload.size();
        followed.stream.Replayed(followed.ask, message->sequence, message->payload, now);
      } else {
        followed.stream.ReplayEnded(followed.ask, now);
        followed.answers.reset();
      }
    }
  }

  void Ask(Followed& followed) {
    const auto ask = followed.stream.TakeAsk();
    if (!ask) return;
    followed.answers.reset();
    followed.ask = ask->id;
    auto socket = ZmqSocket::Open(context, ZmqSocket::Kind::kAsk, {kHighWater, kMaxBatchBytes});
    // Without one there is no answer, and the stream asks again later.
    if (!socket || !(*socket)->Connect(followed.source.replay_endpoint)) return;
    const std::string first = SequenceFrame(ask->from);
    const std::array<std::string_view, 2> frames = {std::string_view(), first};
    (*socket)->Send(frames);
    followed.answers = std::move(*socket);
  }

  void Leave(SourceId id, Followed& followed) {
    auto taken = followed.stream.TakeUpdates();
    if (taken.empty()) return;
    bool first = false;
    {
      const std::lock_guard lock(mutex);
      if (std::ranges::find(to_drop, id) != to_drop.end()) return;
      first = updates.empty();
      for (EventUpdate& update : taken) {
        queued += BlocksOf(update);
        updates.push_back({id, std::move(update)});
      }
      full = queued >= kMostQueued;
    }
    if (first && wake) wake();
  }

  void Report() {
    std::vector<SourceStatus> now;
    for (const auto& [id, followed] : sources) {
      now.push_back({id, followed->stream.stats(), followed->malformed});
    }
    const std::lock_guard lock(mutex);
    statuses.swap(now);
  }

  const Clock& clock;
  Logger& logger;
  const std::function<void()> wake;
  ZmqContext context;
  EventSocketBell bell;
  std::map<SourceId, std::unique_ptr<Followed>> sources;
  bool full = false;  // Nothing is read until updates are taken.

  mutable std::mutex mutex;  // Guards what follows.
  std::vector<std::pair<SourceId, EventSource>> to_follow;
  std::vector<SourceId> to_drop;
  std::vector<SourceUpdate> updates;
  size_t queued = 0;  // Blocks of `updates`
  std::vector<SourceStatus> statuses;
  SourceId next_id = 1;
  bool stop = false;

  std::thread thread;
};

EventSubscriber::EventSubscriber(std::unique_ptr<State> state) : state_(std::move(state)) {}

std::unique_ptr<EventSubscriber> EventSubscriber::Open(const Clock& clock, Logger& logger,
                                                       std::function<void()> wake) {
  auto state = std::make_unique<State>(clock, logger, std::move(wake));
  state->thread = std::thread([raw = state.get()] { raw->Loop(); });
  return std::unique_ptr<EventSubscriber>(new EventSubscriber(std::move(state)));
}

EventSubscriber::~EventSubscriber() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->bell.Ring();
  state_->thread.join();
}

Result<SourceId> EventSubscriber::Follow(const EventSource& source) {
  RETURN_IF_ERROR(CheckEndpoint(source.endpoint));
  if (!source.replay_endpoint.empty()) RETURN_IF_ERROR(CheckEndpoint(source.replay_endpoint));
  SourceId id = 0;
  {
    const std::lock_guard lock(state_->mutex);
    id = state_->next_id++;
    state_->to_follow.emplace_back(id, source);
  }
  state_->bell.Ring();
  return id;
}

void EventSubscriber::Drop(SourceId source) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->to_drop.push_back(source);
    std::erase_if(state_->updates, [&](const SourceUpdate& u) { return u.source == source; });
  }
  state_->bell.Ring();
}

std::vector<SourceUpdate> EventSubscriber::Take() {
  std::vector<SourceUpdate> taken;
  bool was_full = false;
  {
    const std::lock_guard lock(state_->mutex);
    taken.swap(state_->updates);
    was_full = std::exchange(state_->queued, 0) >= kMostQueued;
  }
  if (was_full) state_->bell.Ring();
  return taken;
}

std::vector<SourceStatus> EventSubscriber::statuses() const {
  const std::lock_guard lock(state_->mutex);
  return state_->statuses;
}

}  // namespace divisi
