#include "divisi/control/gateway_links.h"

#include <gtest/gtest.h>
#include <poll.h>

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

 private:
  void Accept(const std::shared_ptr<FrameConnection>& connection) {
    connection->Start([](const std::vector<std::byte>&) {}, [](const std::string&) {});
    for (size_t i = 0; i < frames_; ++i) {
      connection->Send(std::vector<std::byte>(bytes_, static_cast<std::byte>(i)));
    }
  }

  const size_t frames_, bytes_;
  int port_ = 0;
  FrameLoop loop_;  // Last: it calls the rest.
};

void Pause(double seconds) { poll(nullptr, 0, static_cast<int>(seconds * 1000)); }

// The deciding thread takes nothing for longer than the silence that ends connections: what comes
// waits with the gateway beyond the bound, and nothing of it is lost.
TEST(GatewayLinksTest, WhatIsNotTakenIsNotReadBeyondABound) {
  constexpr size_t kFrames = 200, kBytes = 1 << 20;
  Talker talker(kFrames, kBytes);
  GatewayLinks links([] {});
  links.Dial({.link = 1, .address = {"127.0.0.1", talker.port()}});
  Pause(0.1);
  links.Send(1, PingMessage{});  // Who connects speaks first.
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

TEST(GatewayLinksTest, ALinkThatIsPausedEndsWithTheRest) {
  Talker talker(100, 1 << 20);
  GatewayLinks links([] {});
  links.Dial({.link = 1, .address = {"127.0.0.1", talker.port()}});
  Pause(0.1);
  links.Send(1, PingMessage{});
  Pause(0.5);
  links.CloseAll();
  Pause(0.1);
  EXPECT_TRUE(links.Take().empty());
}

}  // namespace
}  // namespace divisi
