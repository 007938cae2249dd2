#include "divisi/kv/event_socket.h"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "divisi/core/format.h"
#include "divisi/kv/event_socket_bell.h"
#include "divisi/kv/event_socket_frames.h"
#include "divisi/kv/event_socket_zmq.h"

namespace divisi {
namespace {

constexpr int kHighWater = 100'000;  // Messages to one consumer, as vLLM's.
constexpr Seconds kSleep{0.1};       // At most; all that matters wakes.
// While a consumer's queue is full: its 1000 messages take longer than that to send.
constexpr Seconds kRetry{0.005};
constexpr size_t kMostReplies = 8;  // At once.
constexpr size_t kMostWaiting = 64;
constexpr size_t kRepliesAtATime = 64;  // Messages, before others have their turn.
constexpr Seconds kReplyTime{120};

// An ask that is answered.
struct Reply {
  std::string client;
  std::deque<NumberedBatch> batches;
  Seconds end;
};

}  // namespace

std::string EventTopic(std::string_view worker, std::string_view model) {
  return Format("kv@{}@{}", worker, model);
}

bool IsListening(std::string_view endpoint) {
  return endpoint.find('*') != endpoint.npos || endpoint.find("::") != endpoint.npos ||
         endpoint.starts_with("ipc://") || endpoint.starts_with("inproc://") ||
         endpoint.ends_with(":0");
}

Result<std::string> EndpointOfRank(const std::string& endpoint, int64_t rank) {
  if (rank == 0) return endpoint;
  if (endpoint.starts_with("inproc://")) return Format("{}_dp{}", endpoint, rank);
  const size_t colon = endpoint.rfind(':');
  const auto port = EndpointPort(endpoint);
  if (!port || rank < 0 || *port + rank > std::numeric_limits<uint16_t>::max()) {
    return Error{Code::kInvalidArgument,
                 Format("'{}' has no endpoint of data-parallel rank {}: that is port + rank of "
                        "tcp://HOST:PORT",
                        endpoint, rank)};
  }
  return Format("{}:{}", endpoint.substr(0, colon), *port + rank);
}

std::string EndpointReachedAt(const std::string& endpoint, const std::string& host) {
  constexpr std::string_view kTcp = "tcp://";
  const size_t colon = endpoint.rfind(':');
  if (!endpoint.starts_with(kTcp) || colon <= kTcp.size() || host.empty()) return endpoint;
  const std::string_view at = std::string_view(endpoint).substr(kTcp.size(), colon - kTcp.size());
  if (at != "*" && at != "0.0.0.0" && at != "[::]") return endpoint;
  return Format("{}{}{}", kTcp, host, endpoint.substr(colon));
}

// The thread owns sockets, log and replies.
struct EventPublisher::State {
  State(EventPublisherOptions given, const Clock& its_clock, Logger& its_logger)
      : options(std::move(given)), clock(its_clock), logger(its_logger), log(options.log) {}

  Result<void> OpenSockets() {
    ASSIGN_OR_RETURN(live, ZmqSocket::Open(context, ZmqSocket::Kind::kPublish, {kHighWater}));
    const bool listens = options.listens || IsListening(options.endpoint);
    RETURN_IF_ERROR(listens ? live->Bind(options.endpoint) : live->Connect(options.endpoint));
    endpoint = listens ? live->bound() : options.endpoint;
    if (options.replay_endpoint.empty()) return {};
    ASSIGN_OR_RETURN(replay, ZmqSocket::Open(context, ZmqSocket::Kind::kAnswer, {}));
    RETURN_IF_ERROR(replay->Bind(options.replay_endpoint));
    replay_endpoint = replay->bound();
    return {};
  }

  void Loop() {
    std::vector<void*> sockets;
    if (replay) sockets.push_back(replay->get());
    while (true) {
      ZmqWait(sockets, bell.fd(), Pause());
      bell.Hear();
      const bool ending = TakeQueue();
      if (flush_at && (ending || clock.Now() >= *flush_at)) Flush();
      TakeAsks();
      SendReplies();
      Report();
      if (ending) return;
    }
  }

  Seconds Pause() const {
    if (!replies.empty()) return stuck ? kRetry : Seconds{0};
    if (!flush_at) return kSleep;
    return std::clamp(*flush_at - clock.Now(), Seconds{0}, kSleep);
  }

  // Whether to end.
  bool TakeQueue() {
    std::vector<KvEvent> events;
    bool overflow = false;
    bool ending = false;
    {
      const std::lock_guard lock(mutex);
      events.swap(queue);
      overflow = std::exchange(overflowed, false);
      ending = stop;
    }
    if (overflow) {
      logger.Log(LogLevel::kWarning, "KV events came faster than they were taken; all cleared");
      log.Add(ClearedEvent{});
    }
    for (const KvEvent& event : events) log.Add(event);
    if (log.pending() && !flush_at) flush_at = clock.Now() + options.gather;
    return ending;
  }

  void Flush() {
    flush_at.reset();
    for (const NumberedBatch& batch : log.Flush(UnixSeconds())) {
      const std::string number = SequenceFrame(batch.sequence);
      const std::array<std::string_view, 3> frames = {options.topic, number, *batch.payload};
      live->Send(frames);  // To nobody, or beyond a consumer's bound: the numbers tell.
    }
  }

  void TakeAsks() {
    for (size_t i = 0; replay && i < kMostWaiting; ++i) {
      auto frames = replay->Receive();
      if (!frames) return;
      const auto first = AskedSequence(*frames);
      if (!first || waiting.size() >= kMostWaiting) {
        ++refused;
        continue;
      }
      const std::string& client = frames->front();
      std::erase_if(replies, [&](const Reply& reply) { return reply.client == client; });
      std::erase_if(waiting, [&](const auto& ask) { return ask.first == client; });
      waiting.emplace_back(client, *first);
    }
  }

  void BeginReplies() {
    while (!waiting.empty() && replies.size() < kMostReplies) {
      const auto [client, first] = std::move(waiting.front());
      waiting.pop_front();
      if (log.pending()) Flush();
      auto batches = log.Since(first, UnixSeconds());
      replies.push_back({client, {batches.begin(), batches.end()}, clock.Now() + kReplyTime});
    }
  }

  void SendReplies() {
    BeginReplies();
    stuck = true;
    std::erase_if(replies, [&](Reply& reply) {
      for (size_t i = 0; i < kRepliesAtATime; ++i) {
        const auto sent = SendNext(reply);
        if (sent == ZmqSocket::Sent::kFull && clock.Now() < reply.end) return false;
        if (sent != ZmqSocket::Sent::kSent) {
          ++refused;
          return true;
        }
        stuck = false;
        if (reply.batches.empty()) {
          ++replays;
          return true;
        }
        reply.batches.pop_front();
      }
      return false;
    });
  }

  // The next batch; after the last one, the end marker.
  ZmqSocket::Sent SendNext(const Reply& reply) {
    const bool end = reply.batches.empty();
    const std::string number = SequenceFrame(end ? kEndSequence : reply.batches.front().sequence);
    std::vector<std::string_view> frames = {reply.client, {}};
    if (options.replay_topic) frames.push_back(options.topic);
    frames.push_back(number);
    frames.push_back(end ? std::string_view() : *reply.batches.front().payload);
    return replay->Send(frames);
  }

  void Report() {
    const auto log_stats = log.stats();
    const std::lock_guard lock(mutex);
    stats.log = log_stats;
    stats.replays = replays;
    stats.refused = refused;
  }

  const EventPublisherOptions options;
  const Clock& clock;
  Logger& logger;
  ZmqContext context;
  std::unique_ptr<ZmqSocket> live;
  std::unique_ptr<ZmqSocket> replay;  // nullptr: none.
  std::string endpoint;
  std::string replay_endpoint;
  EventSocketBell bell;

  EventLog log;
  std::optional<Seconds> flush_at;
  std::deque<std::pair<std::string, uint64_t>> waiting;
  std::vector<Reply> replies;
  bool stuck = false;  // No reply could go on.
  uint64_t replays = 0;
  uint64_t refused = 0;

  mutable std::mutex mutex;  // Guards what follows.
  std::vector<KvEvent> queue;
  bool overflowed = false;
  bool stop = false;
  EventPublisherStats stats;

  std::thread thread;
};

EventPublisher::EventPublisher(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<EventPublisher>> EventPublisher::Open(EventPublisherOptions options,
                                                             const Clock& clock, Logger& logger) {
  auto state = std::make_unique<State>(std::move(options), clock, logger);
  RETURN_IF_ERROR(state->OpenSockets());
  state->thread = std::thread([raw = state.get()] { raw->Loop(); });
  return std::unique_ptr<EventPublisher>(new EventPublisher(std::move(state)));
}

EventPublisher::~EventPublisher() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->bell.Ring();
  state_->thread.join();
}

void EventPublisher::Publish(std::vector<KvEvent> events) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stats.events += events.size();
    auto& queue = state_->queue;
    if (queue.size() + events.size() > kMostQueued) {
      state_->stats.dropped += events.size() + queue.size();
      state_->overflowed = true;
      queue.clear();
    } else {
      std::ranges::move(events, std::back_inserter(queue));
    }
  }
  state_->bell.Ring();
}

size_t EventPublisher::Room() const {
  const std::lock_guard lock(state_->mutex);
  return kMostQueued - std::min(kMostQueued, state_->queue.size());
}

std::string EventPublisher::endpoint() const { return state_->endpoint; }
std::string EventPublisher::replay_endpoint() const { return state_->replay_endpoint; }
EventPublisherStats EventPublisher::stats() const {
  const std::lock_guard lock(state_->mutex);
  return state_->stats;
}

}  // namespace divisi
