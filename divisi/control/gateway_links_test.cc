#include "divisi/control/gateway_links.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>

namespace divisi {
namespace {

using Arrival = GatewayLinks::Arrival;

// A gateway that says much at once to whoever comes.
class Talker {
 public:
  Talker(size_t frames, size_t bytes) : frames_(frames), bytes_(bytes) {
    port_ = loop_.Listen("127.0.0.1", 0, [this](auto given) { Accept(given.value()); }).value();
  }
  int port() const { return port_; }
  // Why its last connection ended; empty while none has.
  std::string ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

 private:
  void Accept(const std::shared_ptr<FrameConnection>& connection) {
    connection->Start([](const std::vector<std::byte>&) {},
                      [this](const std::string& why) {
                        const std::lock_guard lock(mutex_);
                        ended_ = why;
                      });
    connection->Welcome();  // Of a stranger less may wait.
    for (size_t i = 0; i < frames_; ++i) {
      connection->Send(std::vector<std::byte>(bytes_, static_cast<std::byte>(i)));
    }
  }

  const size_t frames_, bytes_;
  int port_ = 0;
  std::mutex mutex_;
  std::string ended_;
  FrameLoop loop_;  // Last: it calls the rest.
};

void Pause(double seconds) { poll(nullptr, 0, static_cast<int>(seconds * 1000)); }

// Whether it comes, within a time that is generous on a loaded machine too.
bool Comes(const std::function<bool()>& what) {
  for (int i = 0; i < 3000 && !what(); ++i) Pause(0.01);
  return what();
}

// Of a link to a Talker, whose frames are of kBytes, nothing is taken.
constexpr size_t kBytes = 1 << 20;
class Untaken {
 public:
  explicit Untaken(const Talker& talker) : links_([this] { ++wakes_; }) {
    links_.Dial({.link = 1, .address = {"127.0.0.1", talker.port()}});
  }
  // Connects and says a word, as who connects does first; until it is paused.
  bool Paused() {
    if (!Comes([this] { return wakes_ > 0; })) return false;  // The first is kConnected.
    links_.Send(1, PingMessage{});
    return Comes([this] { return wakes_ > kMostWaiting / kBytes; });
  }
  GatewayLinks& links() { return links_; }

 private:
  std::atomic<size_t> wakes_ = 0;  // Of arrivals
  GatewayLinks links_;             // Last: it calls.
};

// The deciding thread takes nothing for longer than the silence that ends connections: what comes
// waits with the gateway beyond the bound, and nothing of it is lost.
TEST(GatewayLinksTest, WhatIsNotTakenIsNotReadBeyondABound) {
  constexpr size_t kFrames = 200;
  Talker talker(kFrames, kBytes);
  Untaken untaken(talker);
  GatewayLinks& links = untaken.links();
  ASSERT_TRUE(untaken.Paused());
  Pause(kSilence.value + 0.5);
  std::vector<size_t> rounds;
  size_t frames = 0;
  for (int i = 0; i < 2000 && frames < kFrames; ++i) {
    size_t bytes = 0;
    for (const Arrival& arrival : links.Take()) {
      ASSERT_NE(arrival.kind, Arrival::Kind::kEnded) << arrival.why;
      if (arrival.kind != Arrival::Kind::kFrame) continue;
      bytes += arrival.frame.size();
      ASSERT_EQ(arrival.frame.size(), kBytes);
      EXPECT_EQ(arrival.frame.front(), static_cast<std::byte>(frames));
      ++frames;
    }
    EXPECT_LE(bytes, kMostWaiting + 2 * kBytes);
    if (i == 0) {
      EXPECT_GT(bytes, kMostWaiting / 2);
    }
    Pause(0.01);
  }
  EXPECT_EQ(frames, kFrames);
}

// While nothing is read: what ends it is not that the other side was silent.
TEST(GatewayLinksTest, ALinkThatIsPausedEndsWithTheRest) {
  Talker talker(100, kBytes);
  Untaken untaken(talker);
  ASSERT_TRUE(untaken.Paused());
  EXPECT_EQ(talker.ended(), "");
  untaken.links().CloseAll();
  ASSERT_TRUE(Comes([&] { return !talker.ended().empty(); }));
  EXPECT_EQ(talker.ended().find("nothing was heard"), std::string::npos) << talker.ended();
  EXPECT_TRUE(untaken.links().Take().empty());
}

}  // namespace
}  // namespace divisi
