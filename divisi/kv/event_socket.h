// Cache events between processes, over ZeroMQ and in vLLM's format (docs/kv.md, "Events"): what a
// worker publishes, and what a gateway hears from many. Each side has a thread of its own; whoever
// decides leaves or takes values under a lock that is held for moments, and waits for no socket.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "divisi/core/clock.h"
#include "divisi/core/log.h"
#include "divisi/core/result.h"
#include "divisi/kv/event_log.h"
#include "divisi/kv/event_stream.h"

namespace divisi {

// "kv@<worker>@<model>": the topic by which consumers of llm-d's kind tell workers apart.
std::string EventTopic(std::string_view worker, std::string_view model);
// Where a publisher listens, and does not connect: a wildcard (* or ::), port 0, ipc, inproc. As
// vLLM decides, which does not have port 0.
bool IsListening(std::string_view endpoint);
// The endpoint of a data-parallel rank, as vLLM makes it: port + rank over TCP, a suffix _dpN of
// inproc. Errors: kInvalidArgument for others, and ports beyond 65535.
Result<std::string> EndpointOfRank(const std::string& endpoint, int64_t rank);
// The endpoint as others reach it: where it is every interface of its host, with `host` in its
// place. "tcp://0.0.0.0:5557", "10.0.0.2": "tcp://10.0.0.2:5557".
std::string EndpointReachedAt(const std::string& endpoint, const std::string& host);

struct EventPublisherOptions {
  std::string endpoint = "tcp://*:5557";
  bool listens = false;         // At any endpoint, also one that IsListening takes for another's.
  std::string replay_endpoint;  // "tcp://*:5558"; empty: no replays.
  std::string topic;            // EventTopic; empty as vLLM's default.
  bool replay_topic = true;  // Four frames an answer, as vLLM from 0.26; false: three, as before.
  Seconds gather{0.01};      // Events of so long are one batch.
  EventLog::Options log;
};

struct EventPublisherStats {
  EventLog::Stats log;
  uint64_t events = 0;   // Taken.
  uint64_t dropped = 0;  // Beyond the queue's bound, after which all was cleared.
  uint64_t replays = 0;  // Asks answered to their end.
  uint64_t refused = 0;  // Asks that were none, were too many, or went away.
};

// Events that one worker publishes. Its thread sends what was gathered and answers asks, a few
// messages of each at a time, so that slow consumers hold up nobody; they lose messages instead
// (beyond 100,000), see that by their numbers, and ask.
class EventPublisher {
 public:
  // clock and logger outlive the result.
  // Errors: those of the endpoints: kUnavailable, kInvalidArgument.
  static Result<std::unique_ptr<EventPublisher>> Open(EventPublisherOptions options,
                                                      const Clock& clock, Logger& logger);
  ~EventPublisher();  // Sends what was left to be sent, where that goes at once.

  // From any thread; does not wait. Beyond kMostQueued events that the thread did not take yet,
  // these are dropped, and consumers are told that everything was cleared: what they know less of
  // costs hits, what they know wrongly would cost time.
  void Publish(std::vector<KvEvent> events);
  static constexpr size_t kMostQueued = size_t{1} << 18;
  // How many events Publish takes now without dropping any, if nobody else publishes.
  size_t Room() const;

  // As bound: with the port that was given for port 0.
  std::string endpoint() const;
  std::string replay_endpoint() const;
  EventPublisherStats stats() const;

 private:
  struct State;
  explicit EventPublisher(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A publisher that is followed: of this project, or of vLLM, SGLang and their kind.
struct EventSource {
  std::string endpoint;         // "tcp://10.0.0.7:5557"
  std::string replay_endpoint;  // Empty: it has none. After a gap it is forgotten then.
  std::string topic;            // Only messages whose topic begins so.
  EventStreamOptions stream;    // `replay` is set by replay_endpoint.
};

using SourceId = uint64_t;
struct SourceUpdate {
  SourceId source = 0;
  EventUpdate update;
};
struct SourceStatus {
  SourceId source = 0;
  EventStreamStats stream;
  uint64_t malformed = 0;  // Messages that were not of the format's frames.
};

// Follows many publishers in one thread.
class EventSubscriber {
 public:
  // wake: called from the subscriber's thread when there is something to Take that was not before.
  // clock and logger outlive the result.
  static std::unique_ptr<EventSubscriber> Open(const Clock& clock, Logger& logger,
                                               std::function<void()> wake);
  ~EventSubscriber();

  // From any thread; none waits. The publisher need not be there yet, and may go and come.
  // Errors: kInvalidArgument for an endpoint that is none.
  Result<SourceId> Follow(const EventSource& source);
  // No update of it is taken after.
  void Drop(SourceId source);
  // Updates since, each source's in order. Beyond kMostQueued blocks that they tell of nothing more
  // is read until they are taken; what publishers then drop is asked for later.
  std::vector<SourceUpdate> Take();
  static constexpr size_t kMostQueued = size_t{1} << 18;
  // As of the last tenth of a second.
  std::vector<SourceStatus> statuses() const;

 private:
  struct State;
  explicit EventSubscriber(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace divisi
