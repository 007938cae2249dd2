// Who goes before whom where a request may not go everywhere.
#include <gtest/gtest.h>

#include "divisi/control/dispatcher.h"

namespace divisi {
namespace {

constexpr NodeId kSelf{1}, kPrefill{11}, kFirst{12}, kSecond{13};

// The worker that is asked for the one reservation sent since the last time; 0: there is none.
uint64_t ReservedAt(Dispatcher& dispatcher) {
  uint64_t worker = 0;
  for (const Outgoing& out : dispatcher.TakeMessages()) {
    if (!std::holds_alternative<ReserveMessage>(out.message)) continue;
    EXPECT_EQ(worker, 0u);
    worker = out.to.value;
  }
  return worker;
}

TEST(DispatcherLineTest, WhoLeavesOutAFailedWorkerDoesNotKeepOthersFromIt) {
  Dispatcher dispatcher(kSelf, {.policy = RoutePolicy::kLeastLoaded});
  dispatcher.AddWorker(kPrefill, WorkerRole::kPrefill);
  for (const NodeId node : {kFirst, kSecond}) {
    dispatcher.AddWorker(node, WorkerRole::kDecode, {.max_sequences = 1});
  }
  Seconds now;
  const auto submit = [&] {
    Request request{.prompt = {1, 2, 3}, .max_tokens = 8};
    EXPECT_TRUE(dispatcher.Submit(std::move(request), now).ok());
    return ReservedAt(dispatcher);
  };
  EXPECT_EQ(submit(), kFirst.value);
  EXPECT_EQ(submit(), kSecond.value);
  const Error broken{Code::kUnavailable, "broken"};
  dispatcher.Receive(kFirst, RefusedMessage{{kSelf, 1, 1}, broken}, now);
  now = Seconds(0.1);
  dispatcher.Tick(now);
  EXPECT_EQ(ReservedAt(dispatcher), 0u);  // It waits for the second one, which is full.
  EXPECT_EQ(submit(), kFirst.value);
  dispatcher.Verify();
}

}  // namespace
}  // namespace divisi
