#include "divisi/kv/event_socket.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "divisi/core/format.h"
#include "divisi/kv/event_socket_frames.h"
#include "divisi/kv/event_socket_zmq.h"
#include "divisi/kv/held_blocks.h"

namespace divisi {
namespace {

constexpr std::chrono::seconds kPatience{20};

StoredEvent Stored(uint64_t number) {
  StoredEvent event;
  event.hashes = {EventHash(number)};
  event.medium = "GPU";
  return event;
}
RemovedEvent Removed(uint64_t number) { return {{EventHash(number)}, "GPU", {}, {}}; }

// A subscriber with what it holds of each source.
class Consumer {
 public:
  explicit Consumer(const Clock& clock, Logger& logger)
      : subscriber_(EventSubscriber::Open(clock, logger, [this] { Wake(); })) {}

  SourceId Follow(const EventPublisher& publisher, const std::string& topic = "") {
    EventSource source;
    source.endpoint = Reachable(publisher.endpoint());
    source.replay_endpoint = Reachable(publisher.replay_endpoint());
    source.topic = topic;
    source.stream.check_every = Seconds{0.3};
    source.stream.first_backoff = Seconds{0.05};
    return Follow(source);
  }
  SourceId Follow(const EventSource& source) {
    const auto id = subscriber_->Follow(source);
    EXPECT_TRUE(id.ok());
    return *id;
  }
  // Whether that comes to be.
  bool Sees(const std::function<bool()>& what) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < end) {
      for (const SourceUpdate& update : subscriber_->Take()) {
        HeldBlocks& held = held_[update.source];
        if (update.update.forget) held.Clear();
        for (const KvEvent& event : update.update.events) held.Apply(event);
      }
      if (what()) return true;
      std::unique_lock lock(mutex_);
      woken_.wait_for(lock, std::chrono::milliseconds(20), [this] { return rung_; });
      rung_ = false;
    }
    return false;
  }
  bool Holds(SourceId source, size_t blocks) {
    return Sees([&] { return held_[source].size() == blocks; });
  }
  EventStreamStats Stats(SourceId source) {
    for (const SourceStatus& status : subscriber_->statuses()) {
      if (status.source == source) return status.stream;
    }
    return {};
  }
  EventSubscriber& subscriber() { return *subscriber_; }

  // What is bound to any address is reached by one.
  static std::string Reachable(std::string endpoint) {
    const size_t any = endpoint.find("0.0.0.0");
    if (any != endpoint.npos) endpoint.replace(any, 7, "127.0.0.1");
    return endpoint;
  }

 private:
  void Wake() {
    const std::lock_guard lock(mutex_);
    rung_ = true;
    woken_.notify_one();
  }
  std::mutex mutex_;
  std::condition_variable woken_;
  bool rung_ = false;
  std::map<SourceId, HeldBlocks> held_;
  std::unique_ptr<EventSubscriber> subscriber_;
};

class EventSocketTest : public testing::Test {
 protected:
  std::unique_ptr<EventPublisher> Publisher(EventPublisherOptions options = {}) {
    if (options.endpoint == EventPublisherOptions().endpoint) {
      options.endpoint = "tcp://127.0.0.1:0";
      options.replay_endpoint = "tcp://127.0.0.1:0";
    }
    auto publisher = EventPublisher::Open(options, clock_, logger_);
    EXPECT_TRUE(publisher.ok()) << publisher.error().message;
    return std::move(*publisher);
  }
  // As Python's code of vLLM asks: the frames of each answer.
  std::vector<std::vector<std::string>> Ask(const EventPublisher& publisher, uint64_t first) {
    const ZmqContext context;
    auto socket = ZmqSocket::Open(context, ZmqSocket::Kind::kAsk, {1000, kMaxBatchBytes});
    EXPECT_TRUE((*socket)->Connect(publisher.replay_endpoint()).ok());
    const std::string number = SequenceFrame(first);
    (*socket)->Send(std::vector<std::string_view>{"", number});
    std::vector<std::vector<std::string>> answers;
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < end) {
      std::vector<void*> sockets = {(*socket)->get()};
      ZmqWait(sockets, -1, Seconds{0.1});
      while (auto frames = (*socket)->Receive()) {
        answers.push_back(*frames);
        const auto message = ReadAnswer(*frames);
        EXPECT_TRUE(message.has_value());
        if (!message || message->sequence == kEndSequence) return answers;
      }
    }
    ADD_FAILURE() << "no end";
    return answers;
  }

  SteadyClock clock_;
  Logger logger_{{.least = LogLevel::kError}};
};

TEST_F(EventSocketTest, WhoComesLateGetsWhatWasAndWhatComes) {
  auto publisher = Publisher();
  publisher->Publish({Stored(1), Stored(2)});
  Consumer consumer(clock_, logger_);
  const SourceId source = consumer.Follow(*publisher);
  EXPECT_TRUE(consumer.Holds(source, 2));
  publisher->Publish({Stored(3), Removed(1)});
  publisher->Publish({Stored(4)});
  EXPECT_TRUE(consumer.Holds(source, 3));
  EXPECT_TRUE(consumer.Sees([&] { return consumer.Stats(source).following; }));
  EXPECT_TRUE(consumer.Stats(source).connected);
  EXPECT_EQ(consumer.Stats(source).losses, 0u);
}

TEST_F(EventSocketTest, WhoMissedMoreThanTheRingGetsASnapshot) {
  EventPublisherOptions options;
  options.gather = Seconds{0};
  options.log.ring_batches = 2;
  auto publisher = Publisher(options);
  for (uint64_t number = 0; number < 50; ++number) {
    publisher->Publish({Stored(number)});
    if (number % 2 == 1) publisher->Publish({Removed(number)});
    while (publisher->stats().log.held < number / 2 + 1) std::this_thread::yield();
  }
  Consumer consumer(clock_, logger_);
  EXPECT_TRUE(consumer.Holds(consumer.Follow(*publisher), 25));
  EXPECT_GE(publisher->stats().log.snapshots, 1u);
}

TEST_F(EventSocketTest, ANewLifeAtTheSameAddressIsNoticed) {
  auto publisher = Publisher();
  const EventPublisherOptions same{.endpoint = publisher->endpoint(),
                                   .replay_endpoint = publisher->replay_endpoint()};
  EXPECT_TRUE(IsListening("tcp://127.0.0.1:0"));
  publisher->Publish({Stored(1), Stored(2), Stored(3)});
  Consumer consumer(clock_, logger_);
  const SourceId source = consumer.Follow(*publisher);
  EXPECT_TRUE(consumer.Holds(source, 3));
  publisher.reset();
  // Not a wildcard, so vLLM's rule would connect: a name that is bound needs one.
  auto again = same;
  again.endpoint.replace(again.endpoint.find("127.0.0.1"), 9, "*");
  publisher = Publisher(again);
  publisher->Publish({Stored(7)});
  EXPECT_TRUE(consumer.Holds(source, 1));
  EXPECT_TRUE(consumer.Sees([&] { return consumer.Stats(source).restarts == 1; }));
}

TEST_F(EventSocketTest, ManySourcesAreFollowedByOneThread) {
  Consumer consumer(clock_, logger_);
  std::vector<std::unique_ptr<EventPublisher>> publishers;
  std::vector<SourceId> sources;
  for (uint64_t i = 0; i < 20; ++i) {
    publishers.push_back(Publisher());
    sources.push_back(consumer.Follow(*publishers.back()));
    for (uint64_t number = 0; number <= i; ++number) publishers.back()->Publish({Stored(number)});
  }
  for (uint64_t i = 0; i < 20; ++i) EXPECT_TRUE(consumer.Holds(sources[i], i + 1)) << i;
  consumer.subscriber().Drop(sources[0]);
  EXPECT_TRUE(consumer.Sees([&] { return consumer.subscriber().statuses().size() == 19; }));
}

TEST_F(EventSocketTest, TopicsAreFiltered) {
  EventPublisherOptions options;
  options.topic = EventTopic("a", "model");
  EXPECT_EQ(options.topic, "kv@a@model");
  auto publisher = Publisher(options);
  Consumer consumer(clock_, logger_);
  EventSource source;
  source.endpoint = publisher->endpoint();
  source.topic = "kv@a@";
  const SourceId right = consumer.Follow(source);
  source.topic = "kv@b@";
  const SourceId other = consumer.Follow(source);
  EXPECT_TRUE(consumer.Sees(
      [&] { return consumer.Stats(right).connected && consumer.Stats(other).connected; }));
  // Without replay only what comes after the subscription is heard.
  uint64_t number = 0;
  EXPECT_TRUE(consumer.Sees([&] {
    publisher->Publish({Stored(number++)});
    return consumer.Stats(right).batches > 0;
  }));
  EXPECT_EQ(consumer.Stats(other).batches, 0u);
}

TEST_F(EventSocketTest, AnswersHaveTheFramesOfEitherVersion) {
  for (const bool topic : {true, false}) {
    EventPublisherOptions options;
    options.topic = "kv@a@m";
    options.replay_topic = topic;
    auto publisher = Publisher(options);
    publisher->Publish({Stored(1)});
    while (publisher->stats().log.published < 1) std::this_thread::yield();
    const auto answers = Ask(*publisher, 0);
    ASSERT_EQ(answers.size(), 2u);
    for (const auto& frames : answers) {
      ASSERT_EQ(frames.size(), topic ? 4u : 3u);
      EXPECT_EQ(frames[0], "");
      if (topic) {
        EXPECT_EQ(frames[1], "kv@a@m");
      }
    }
    EXPECT_EQ(ReadAnswer(answers[0])->sequence, 0u);
    EXPECT_TRUE(DecodeEventBatch(answers[0].back()).ok());
    EXPECT_EQ(answers[1][answers[1].size() - 2], std::string(8, '\xff'));
    EXPECT_EQ(answers[1].back(), "");
    EXPECT_EQ(Ask(*publisher, 1).size(), 1u);
  }
}

TEST_F(EventSocketTest, LongAnswersComeWhole) {
  EventPublisherOptions options;
  options.gather = Seconds{0};
  options.log.batch_blocks = 1;
  auto publisher = Publisher(options);
  std::vector<KvEvent> events;
  for (uint64_t number = 0; number < 5000; ++number) events.emplace_back(Stored(number));
  publisher->Publish(std::move(events));
  while (publisher->stats().log.published < 5000) std::this_thread::yield();
  EXPECT_EQ(Ask(*publisher, 0).size(), 5001u);
  Consumer consumer(clock_, logger_);
  EXPECT_TRUE(consumer.Holds(consumer.Follow(*publisher), 5000));
}

TEST_F(EventSocketTest, StrangersAreRefused) {
  auto publisher = Publisher();
  publisher->Publish({Stored(1)});
  const ZmqContext context;
  auto socket = ZmqSocket::Open(context, ZmqSocket::Kind::kAsk, {});
  ASSERT_TRUE((*socket)->Connect(publisher->replay_endpoint()).ok());
  (*socket)->Send(std::vector<std::string_view>{"", "short"});
  (*socket)->Send(std::vector<std::string_view>{"no empty frame", SequenceFrame(0)});
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (publisher->stats().refused < 2 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(publisher->stats().refused, 2u);
  EXPECT_EQ(Ask(*publisher, 0).size(), 2u);
}

TEST_F(EventSocketTest, OverIpcToo) {
  const std::string path = Format("ipc:///tmp/divisi-events-{}", getpid());
  auto publisher =
      Publisher({.endpoint = path + ".live", .replay_endpoint = path + ".replay", .topic = ""});
  publisher->Publish({Stored(1)});
  Consumer consumer(clock_, logger_);
  EXPECT_TRUE(consumer.Holds(consumer.Follow(*publisher), 1));
  publisher.reset();
  unlink((path.substr(6) + ".live").c_str());
  unlink((path.substr(6) + ".replay").c_str());
}

TEST_F(EventSocketTest, EndpointsOfRanks) {
  EXPECT_EQ(*EndpointOfRank("tcp://*:5557", 0), "tcp://*:5557");
  EXPECT_EQ(*EndpointOfRank("tcp://*:5557", 3), "tcp://*:5560");
  EXPECT_EQ(*EndpointOfRank("inproc://kv", 2), "inproc://kv_dp2");
  for (const char* endpoint :
       {"ipc:///kv", "tcp://*:65535", "tcp://host", "tcp://*:", "tcp://:x"}) {
    EXPECT_FALSE(EndpointOfRank(endpoint, 1).ok()) << endpoint;
  }
  for (const char* endpoint : {"tcp://*:5557", "tcp://[::]:5557", "ipc:///kv", "inproc://kv"}) {
    EXPECT_TRUE(IsListening(endpoint)) << endpoint;
  }
  EXPECT_FALSE(IsListening("tcp://10.0.0.1:5557"));
}

TEST_F(EventSocketTest, WhatIsNoEndpointIsSaid) {
  auto publisher = EventPublisher::Open({.endpoint = "tcp://*:no"}, clock_, logger_);
  ASSERT_FALSE(publisher.ok());
  EXPECT_EQ(publisher.error().code, Code::kInvalidArgument);
  auto first = Publisher();
  std::string taken = first->endpoint();
  taken.replace(taken.find("127.0.0.1"), 9, "*");
  publisher = EventPublisher::Open({.endpoint = taken}, clock_, logger_);
  ASSERT_FALSE(publisher.ok());
  EXPECT_EQ(publisher.error().code, Code::kUnavailable);
  Consumer consumer(clock_, logger_);
  for (const char* endpoint : {"", "tcp://host", "tcp://*:5557", "tcp://host:0", "http://host:80",
                               "inproc://kv", "ipc://"}) {
    EXPECT_FALSE(consumer.subscriber().Follow({.endpoint = endpoint}).ok()) << endpoint;
  }
}

TEST_F(EventSocketTest, AConsumerThatTakesNothingHoldsUpNobody) {
  EventPublisherOptions options;
  options.gather = Seconds{0};
  auto publisher = Publisher(options);
  auto subscriber = EventSubscriber::Open(clock_, logger_, {});
  ASSERT_TRUE(subscriber->Follow({.endpoint = publisher->endpoint()}).ok());
  for (uint64_t number = 0; number < 1000; ++number) publisher->Publish({Stored(number)});
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (publisher->stats().log.held < 1000 && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  EXPECT_EQ(publisher->stats().log.held, 1000u);
}

// An event of a foreign publisher may tell of many blocks: they count, not it.
TEST_F(EventSocketTest, WhatIsNotTakenIsBoundedInBlocks) {
  const ZmqContext context;
  const auto live = ZmqSocket::Open(context, ZmqSocket::Kind::kPublish, {1000, kMaxBatchBytes});
  ASSERT_TRUE((*live)->Bind("tcp://127.0.0.1:*").ok());
  const auto subscriber = EventSubscriber::Open(clock_, logger_, {});
  ASSERT_TRUE(subscriber->Follow({.endpoint = (*live)->bound()}).ok());
  const auto heard = [&] {
    const auto statuses = subscriber->statuses();
    return statuses.empty() ? 0 : statuses[0].stream.batches;
  };
  uint64_t sequence = 0;
  // Whether it is heard soon. A large one takes its time.
  const auto publish = [&](size_t blocks, int looks = 50) {
    const uint64_t before = heard();
    StoredEvent event = Stored(1);
    event.hashes.resize(blocks, EventHash(uint64_t{7}));
    const std::string batch = EncodeEventBatch({.events = {event}}, EventShape::kMap);
    const std::string number = SequenceFrame(sequence++);
    (*live)->Send(std::vector<std::string_view>{"", number, batch});
    for (int i = 0; i < looks && heard() == before; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return heard() > before;
  };
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!publish(1) && std::chrono::steady_clock::now() < end) {
  }
  int taken = 0;
  while (taken < 8 && publish(EventSubscriber::kMostQueued / 4, taken < 4 ? 2000 : 50)) ++taken;
  EXPECT_EQ(taken, 4);
  EXPECT_GE(subscriber->Take().size(), 5u);
  EXPECT_TRUE(publish(1, 2000));  // It goes on.
}

TEST_F(EventSocketTest, AnEndpointIsSaidAsOthersReachIt) {
  EXPECT_EQ(EndpointReachedAt("tcp://0.0.0.0:5557", "10.0.0.2"), "tcp://10.0.0.2:5557");
  EXPECT_EQ(EndpointReachedAt("tcp://*:5557", "[fd00::2]"), "tcp://[fd00::2]:5557");
  EXPECT_EQ(EndpointReachedAt("tcp://[::]:5557", "10.0.0.2"), "tcp://10.0.0.2:5557");
  EXPECT_EQ(EndpointReachedAt("tcp://10.0.0.9:5557", "10.0.0.2"), "tcp://10.0.0.9:5557");
  EXPECT_EQ(EndpointReachedAt("ipc:///tmp/x", "10.0.0.2"), "ipc:///tmp/x");
  EXPECT_EQ(EndpointReachedAt("", "10.0.0.2"), "");
}

}  // namespace
}  // namespace divisi
