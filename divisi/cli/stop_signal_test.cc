#include "divisi/cli/stop_signal.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace divisi {
namespace {

// Each in a process of its own: what it blocks, and its thread, stay to the process's end.
TEST(StopSignalTest, BeforeItServesOneEndsTheProcess) {
  EXPECT_EXIT(
      {
        new StopSignal;
        kill(getpid(), SIGTERM);
        pause();
      },
      testing::ExitedWithCode(128 + SIGTERM), "");
}

TEST(StopSignalTest, AtOnceAfterServeOneAsksAndTheNextEnds) {
  EXPECT_EXIT(
      {
        const std::atomic<bool>& asked = (new StopSignal)->Serve();
        kill(getpid(), SIGTERM);
        asked.wait(false);
        _exit(0);
      },
      testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        const std::atomic<bool>& asked = (new StopSignal)->Serve();
        kill(getpid(), SIGTERM);
        asked.wait(false);
        kill(getpid(), SIGINT);
        pause();
      },
      testing::ExitedWithCode(128 + SIGINT), "");
}

}  // namespace
}  // namespace divisi
