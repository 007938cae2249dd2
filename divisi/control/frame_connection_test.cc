#include "divisi/control/frame_connection.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

namespace divisi {
namespace {

// A timer that is due when the loop is told to end must not begin anew: the loop would never end.
TEST(FrameLoopTest, EndsWhileItsTimersAreDue) {
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> calls{0};
    FrameLoop loop;
    for (int timer = 0; timer < 4; ++timer) loop.Every(Seconds(0), [&] { ++calls; });
    while (calls < 20) {
    }
  }
}

TEST(FrameLoopTest, EndsWhileOthersConnect) {
  FrameLoop other;
  for (int round = 0; round < 50; ++round) {
    std::vector<std::shared_ptr<FrameConnection>> connections;
    FrameLoop loop;
    const auto port = loop.Listen("127.0.0.1", 0, [](auto connection) {
      FrameLoop::Start(
          connection, [](auto) {}, [](const auto&) {});
    });
    ASSERT_TRUE(port);
    for (int i = 0; i < 5; ++i) {
      auto connection = other.Connect("127.0.0.1", *port, Seconds(5));
      ASSERT_TRUE(connection);
      connections.push_back(*connection);
    }
  }
}

}  // namespace
}  // namespace divisi
