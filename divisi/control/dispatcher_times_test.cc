// How long a dispatcher waits for a first token.
#include <gtest/gtest.h>

#include "divisi/control/dispatcher.h"

namespace divisi {
namespace {

constexpr NodeId kSelf{1}, kReplica{2};

// Seconds until a request of a worker that never answers has failed, and how often it was tried.
std::pair<int, int> TimeOf(int64_t tokens) {
  Dispatcher dispatcher(kSelf, {});
  dispatcher.AddWorker(kReplica, WorkerRole::kReplica);
  Request request{.max_tokens = 8};
  request.prompt.assign(static_cast<size_t>(tokens), 7);
  EXPECT_TRUE(dispatcher.Submit(std::move(request), Seconds(0)).ok());
  int seconds = 0, attempts = 0;
  for (; dispatcher.live() > 0 && seconds < 10'000; dispatcher.Tick(Seconds(++seconds))) {
    for (const Outgoing& out : dispatcher.TakeMessages()) {
      attempts += std::holds_alternative<ServeMessage>(out.message);
    }
  }
  return {seconds, attempts};
}

TEST(DispatcherTimesTest, ALongPromptIsGivenTheTimeToComputeIt) {
  const auto [short_time, short_attempts] = TimeOf(100);
  EXPECT_LE(short_time, 130);
  const auto [long_time, long_attempts] = TimeOf(8192);  // Some 80 s on two cores.
  EXPECT_GE(long_time, 400);
  EXPECT_LE(long_time, 540);
  EXPECT_EQ(long_attempts, short_attempts);
}

}  // namespace
}  // namespace divisi
