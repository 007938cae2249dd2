// Loads of one modelled worker end as TierIo's do: at their deadlines, when nobody wants them any
// more, and at once where too many wait.
#include <gtest/gtest.h>

#include <map>

#include "divisi/sim/service_tiers.h"

namespace divisi {
namespace {

constexpr Bytes kPage(256);
constexpr Seconds kToken(0.01);  // A page takes 160 ms to compute.
constexpr int64_t kBlocks = 200;

BytesPerSecond PageIn(double seconds) { return kPage / Seconds(seconds); }

// What workers share.
struct Net {
  SimSchedule schedule;
  SimFlows flows{schedule};
  ServiceStore store{{.memory = Bytes(1 << 20)}, flows};
};

class Node {
  using Kind = SchedulerEvent::Kind;

 public:
  Node(Net& net, const ServiceTiers& tiers)
      : net_(net),
        driver_(tiers, kPage,
                {.schedule = net.schedule,
                 .flows = net.flows,
                 .store = &net.store,
                 .device = device_,
                 .moved = [this] { Carry(); }}),
        loader_(scheduler_, scheduling_, driver_.Options(kBlocks)) {}

  void Add(RequestId id, int64_t tokens, TokenId first = 0) {
    Request request{.id = id, .max_tokens = 1};
    for (int64_t i = 0; i < tokens; ++i) request.prompt.push_back(static_cast<TokenId>(first + i));
    ASSERT_TRUE(loader_.Add(std::move(request), net_.schedule.now()).ok());
    Carry();
  }
  void Cancel(RequestId id) {
    if (!loader_.Cancel(id, net_.schedule.now())) scheduler_.Cancel(id);
    Carry();
  }
  void Carry() { driver_.Carry(loader_, kToken); }
  // Steps take no time.
  void Run(double until) {
    bool more = true;
    while (more) {
      Step();
      more = net_.schedule.now() < Seconds(until) && net_.schedule.Step();
    }
    EXPECT_EQ(device_.first_fault(), "");
  }

  PrefixLoaderStats stats() const { return loader_.stats(); }
  std::map<RequestId, int64_t> cached;
  std::map<RequestId, Seconds> began;

 private:
  void Step() {
    while (true) {
      Carry();
      const StepPlan& plan = scheduler_.Plan();
      if (plan.slices.empty()) return;
      const auto events = scheduler_.Commit(device_.Execute(plan));
      loader_.Note(events, net_.schedule.now());
      for (const SchedulerEvent& event : events) {
        if (event.kind != Kind::kScheduled) continue;
        cached[event.request] = event.cached_tokens;
        began[event.request] = net_.schedule.now();
      }
    }
  }

  Net& net_;
  const SchedulerOptions scheduling_{
      .max_batched_tokens = 4096, .blocks = kBlocks, .report_pages = true};
  SimExecutor device_{{.blocks = kBlocks}};
  Scheduler scheduler_{scheduling_};
  ServiceTierDriver driver_;
  PrefixLoader loader_;
};

class ServiceTierDriverTest : public testing::Test {
 protected:
  // Leaves those prompts' pages in the pool.
  void Fill(std::initializer_list<std::pair<int64_t, TokenId>> prompts) {
    Node node(net_, {});
    RequestId id = 0;
    for (const auto& [tokens, first] : prompts) node.Add(++id, tokens, first);
    node.Run(10);
    ASSERT_EQ(node.stats().tiers.pool_waiting, 0);
    start_ = net_.schedule.now().value;
  }
  Net net_;
  double start_ = 0;  // When the pool is full
};

// 1.6 s are what computing takes, and there are 5 of 10 pages by then.
TEST_F(ServiceTierDriverTest, ALateLoadFromThePoolGivesWhatWasReadByThen) {
  Fill({{161, 0}});
  Node node(net_, {.network = PageIn(0.3)});
  node.Add(1, 161);
  node.Run(start_ + 5);
  EXPECT_EQ(node.stats().loads_failed, 1);
  EXPECT_EQ(node.stats().pages_read, 5);
  EXPECT_EQ(node.stats().pages_used, 5);
  EXPECT_EQ(node.cached.at(1), 80);
}

TEST_F(ServiceTierDriverTest, ALateLoadFromHostMemoryGivesNothing) {
  Node node(net_, {.host_pages = 1000, .pcie = PageIn(0.3)});
  node.Add(1, 161);
  node.Run(100);
  for (RequestId id = 2; id < 5; ++id) {  // They push it out.
    node.Add(id, 1601, static_cast<TokenId>(id * 10'000));
    node.Run(100 * static_cast<double>(id));
  }
  node.Add(5, 161);
  node.Run(1000);
  EXPECT_EQ(node.stats().loads_failed, 1);
  EXPECT_EQ(node.stats().pages_read, 0);
  EXPECT_EQ(node.cached.at(5), 0);
}

TEST_F(ServiceTierDriverTest, ALoadThatNobodyWantsMakesWay) {
  Fill({{161, 0}, {81, 5000}});
  Node node(net_, {.network = PageIn(0.1)});
  node.Add(1, 161);
  node.Add(2, 81, 5000);
  net_.schedule.At(Seconds(start_ + 0.2), [&node] { node.Cancel(1); });
  node.Run(start_ + 5);
  EXPECT_FALSE(node.began.contains(1));
  EXPECT_EQ(node.cached.at(2), 80);
  EXPECT_NEAR(node.began.at(2).value, start_ + 0.2 + 5 * 0.1, 0.01);
}

TEST_F(ServiceTierDriverTest, ALoadIsLateWhileItWaitsForAnother) {
  Fill({{161, 0}, {33, 5000}});
  Node node(net_, {.network = PageIn(0.1)});
  node.Add(1, 161);
  node.Add(2, 33, 5000);  // Of two pages, which take 320 ms to compute
  node.Run(start_ + 5);
  EXPECT_EQ(node.cached.at(1), 160);
  EXPECT_EQ(node.cached.at(2), 0);
  EXPECT_NEAR(node.began.at(2).value, start_ + 0.32, 0.01);
}

TEST_F(ServiceTierDriverTest, SixtyFourLoadsAreAskedForAtATime) {
  {
    Node node(net_, {});
    for (RequestId id = 1; id <= 70; ++id) node.Add(id, 17, static_cast<TokenId>(id * 100));
    node.Run(10);
  }
  Node node(net_, {.network = PageIn(1e-4), .loading_pages = 150});
  for (RequestId id = 1; id <= 70; ++id) node.Add(id, 17, static_cast<TokenId>(id * 100));
  node.Run(20);
  EXPECT_EQ(node.stats().loads, 64);
  EXPECT_EQ(node.stats().no_room, 6);  // Their turn came before.
  EXPECT_EQ(node.stats().loads_failed, 0);
  EXPECT_EQ(node.stats().pages_used, 64);
}

}  // namespace
}  // namespace divisi
