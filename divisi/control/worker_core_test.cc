#include "divisi/control/worker_core.h"

#include <gtest/gtest.h>

#include <utility>

#include "divisi/control/member_keys.h"

namespace divisi {
namespace {

constexpr NodeId kGateway{1}, kSelf{11}, kAgain{12}, kPeer{13};
constexpr Seconds kNow{1};
constexpr LinkId kLink = 1;  // Membership's first
using Kind = WorkerFate::Kind;

template <typename Action>
std::vector<Action> Of(const std::vector<WorkerAction>& actions) {
  std::vector<Action> found;
  for (const WorkerAction& action : actions) {
    if (const auto* each = std::get_if<Action>(&action)) found.push_back(*each);
  }
  return found;
}

template <typename Message>
std::vector<Message> Sent(const std::vector<WorkerAction>& actions) {
  std::vector<Message> found;
  for (const SendAction& send : Of<SendAction>(actions)) {
    if (const auto* each = std::get_if<Message>(&send.message)) found.push_back(*each);
  }
  return found;
}

WorkerCoreOptions Options() {
  return {.role = WorkerRole::kReplica,
          .name = "w",
          .gateways = {{"10.0.0.1", 8001}},
          .scheduler = {.blocks = 64},
          .page = Bytes(100)};
}

class WorkerCoreTest : public testing::Test {
 protected:
  WorkerCoreTest() : core_(Options(), kNow) { core_.BeNew(kSelf, {.address = "10.0.0.2:7000"}); }

  void Join() {
    core_.Tick(kNow);
    core_.Connected(kLink, false);
    core_.Receive(kLink, WelcomeMessage{kGateway}, kNow);
    core_.TakeActions();
  }
  void Serve(uint64_t number) {
    const ServeMessage serve{{kGateway, number, 1}, {.prompt = {1, 2, 3}, .max_tokens = 1}};
    core_.Receive(kLink, RelayMessage{kGateway, kSelf, serve}, kNow);
  }

  WorkerCore core_;
};

TEST_F(WorkerCoreTest, DialsSaysHelloAndServes) {
  core_.Tick(kNow);
  const auto dials = Of<DialAction>(core_.TakeActions());
  ASSERT_EQ(dials.size(), 1u);
  EXPECT_EQ(dials[0].address.host, "10.0.0.1");
  core_.Connected(dials[0].link, false);
  const auto hellos = Sent<HelloMessage>(core_.TakeActions());
  ASSERT_EQ(hellos.size(), 1u);
  EXPECT_EQ(hellos[0].node, kSelf);
  EXPECT_EQ(hellos[0].data_address, "10.0.0.2:7000");
  core_.Receive(dials[0].link, WelcomeMessage{kGateway}, kNow);
  Serve(1);
  const StepPlan* plan = core_.BeginStep(kNow);
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(core_.BeginStep(kNow), nullptr) << "one step at a time";
  core_.TakeActions();
  core_.EndStep({{.sampled = SampledToken{.token = 3}}}, kNow);
  const auto relays = Sent<RelayMessage>(core_.TakeActions());
  ASSERT_EQ(relays.size(), 1u);
  EXPECT_EQ(relays[0].from, kSelf);
  EXPECT_EQ(relays[0].to, kGateway);
  EXPECT_TRUE(std::holds_alternative<TokensMessage>(relays[0].message));
}

TEST_F(WorkerCoreTest, ReportsToItsGateways) {
  core_.Tick(kNow);
  EXPECT_TRUE(Sent<ReportMessage>(core_.TakeActions()).empty());
  core_.Connected(kLink, false);
  core_.Receive(kLink, WelcomeMessage{kGateway}, kNow);
  EXPECT_EQ(Sent<ReportMessage>(core_.TakeActions()).size(), 1u) << "before it did anything there";
  core_.Tick(kNow + Seconds(1));
  const auto reports = Sent<ReportMessage>(core_.TakeActions());
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].blocks_total, 64);
}

TEST_F(WorkerCoreTest, APeerThatIsGoneIsBarredForGood) {
  Join();
  core_.Receive(kLink, PeerUpMessage{.node = kPeer, .data_address = "10.0.0.3:7000"}, kNow);
  const auto peers = Of<AddPeerAction>(core_.TakeActions());
  ASSERT_EQ(peers.size(), 1u);
  EXPECT_EQ(peers[0].memory.address, "10.0.0.3:7000");
  core_.Receive(kLink, PeerGoneMessage{kPeer}, kNow);
  core_.Tick(kNow);
  const auto bars = Of<BarAction>(core_.TakeActions());
  ASSERT_EQ(bars.size(), 1u);
  EXPECT_EQ(bars[0].node, kPeer);
  core_.Barred(kPeer, kNow);
  core_.Receive(kLink, PeerUpMessage{.node = kPeer}, kNow);
  const auto actions = core_.TakeActions();
  EXPECT_TRUE(Of<AddPeerAction>(actions).empty());
  EXPECT_EQ(Sent<PeerGoneMessage>(actions).size(), 1u);
}

TEST_F(WorkerCoreTest, LeavesWhenItHasNothingMore) {
  Join();
  Serve(1);
  core_.Leave(Seconds(30), kNow);
  core_.Leave(Seconds(30), kNow);
  core_.Tick(kNow);
  auto leaves = Sent<LeaveMessage>(core_.TakeActions());
  ASSERT_EQ(leaves.size(), 1u);
  EXPECT_FALSE(leaves[0].now);
  core_.Receive(kLink, RelayMessage{kGateway, kSelf, AbortMessage{{kGateway, 1, 1}}}, kNow);
  core_.TakeActions();
  core_.Tick(kNow);
  leaves = Sent<LeaveMessage>(core_.TakeActions());
  ASSERT_EQ(leaves.size(), 1u);
  EXPECT_TRUE(leaves[0].now);
  EXPECT_EQ(core_.Fate(kNow).kind, Kind::kGoesOn) << "for its last word to be heard";
  Serve(2);
  EXPECT_EQ(core_.BeginStep(kNow), nullptr);
  core_.Ended(kLink, "it left", kNow);
  const WorkerFate fate = core_.Fate(kNow);
  EXPECT_EQ(fate.kind, Kind::kEnds);
  EXPECT_TRUE(fate.end.ok());
}

TEST_F(WorkerCoreTest, EndsWithoutAnAnswerToItsLastWord) {
  Join();
  core_.Leave(Seconds(0), kNow);
  core_.Tick(kNow);
  EXPECT_EQ(core_.Fate(kNow + Seconds(0.4)).kind, Kind::kGoesOn);
  EXPECT_EQ(core_.Fate(kNow + Seconds(0.6)).kind, Kind::kEnds);
}

// Gateways take a longer one for no message at all.
TEST_F(WorkerCoreTest, ADrainIsNoLongerThanMayBeSaid) {
  Join();
  core_.Leave(Seconds(1e9), kNow);
  const auto leaves = Sent<LeaveMessage>(core_.TakeActions());
  ASSERT_EQ(leaves.size(), 1u);
  EXPECT_EQ(leaves[0].drain, kLongestDrain);
}

TEST_F(WorkerCoreTest, OneThatWasDeclaredDeadBeginsAnew) {
  Join();
  core_.Receive(kLink, RejectMessage{"declared dead", /*dead=*/true}, kNow);
  const WorkerFate fate = core_.Fate(kNow);
  EXPECT_EQ(fate.kind, Kind::kBeginsAnew);
  EXPECT_EQ(fate.why, "declared dead");
  core_.BeNew(kAgain, {.address = "10.0.0.2:7001"});
  const auto asked = Of<DirectoryAction>(core_.TakeActions());
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(std::get<DropAction>(asked[0]).key, WorkerKey(kSelf));
  EXPECT_EQ(std::get<KeepAction>(asked[1]).key, WorkerKey(kAgain));
  EXPECT_EQ(core_.Fate(kNow).kind, Kind::kGoesOn);
  core_.Tick(kNow);
  EXPECT_EQ(Of<DialAction>(core_.TakeActions()).size(), 1u);
}

TEST_F(WorkerCoreTest, OneThatLeavesDoesNotBeginAnew) {
  Join();
  Serve(1);
  core_.Leave(Seconds(30), kNow);
  core_.Receive(kLink, RejectMessage{"declared dead", /*dead=*/true}, kNow);
  EXPECT_EQ(core_.Fate(kNow).kind, Kind::kGoesOn);
  core_.Ended(kLink, "closed", kNow);
  core_.Tick(kNow);
  EXPECT_EQ(core_.Fate(kNow).kind, Kind::kEnds);
}

// What the model allows, or what its pages hold.
TEST_F(WorkerCoreTest, SaysHowLongARequestItRuns) {
  for (const auto& [blocks, expected] : {std::pair<int64_t, int64_t>{64, 1024}, {200, 2048}}) {
    WorkerCoreOptions options = Options();
    options.scheduler.blocks = blocks;
    WorkerCore core(options, kNow);
    core.BeNew(kSelf, {.address = "10.0.0.2:7000"});
    core.Tick(kNow);
    core.Connected(kLink, false);
    EXPECT_EQ(Sent<HelloMessage>(core.TakeActions()).at(0).context, expected);
  }
}

TEST_F(WorkerCoreTest, OneThatIsRefusedEndsWithTheReason) {
  core_.Tick(kNow);
  core_.Connected(kLink, false);
  core_.Receive(kLink, RejectMessage{"the model differs"}, kNow);
  const WorkerFate fate = core_.Fate(kNow);
  ASSERT_EQ(fate.kind, Kind::kEnds);
  ASSERT_FALSE(fate.end.ok());
  EXPECT_EQ(fate.end.error().code, Code::kInvalidArgument);
  EXPECT_NE(fate.end.error().message.find("the model differs"), std::string::npos);
}

TEST_F(WorkerCoreTest, OneWithoutGatewaysGivesUp) {
  EXPECT_EQ(core_.Fate(kNow + Seconds(59)).kind, Kind::kGoesOn);
  const WorkerFate fate = core_.Fate(kNow + Seconds(61));
  ASSERT_EQ(fate.kind, Kind::kEnds);
  ASSERT_FALSE(fate.end.ok());
  EXPECT_EQ(fate.end.error().code, Code::kUnavailable);
}

TEST_F(WorkerCoreTest, AnAddressThatOthersDoNotReachIsNotTold) {
  core_.BeNew(kAgain, {.address = "127.0.0.1:7000", .loopback = true});
  core_.Tick(kNow);
  core_.TakeActions();
  core_.Connected(2, false);
  EXPECT_TRUE(Sent<HelloMessage>(core_.TakeActions()).empty());
  const WorkerFate fate = core_.Fate(kNow);
  ASSERT_EQ(fate.kind, Kind::kEnds);
  ASSERT_FALSE(fate.end.ok());
  EXPECT_NE(fate.end.error().message.find("--data-listen"), std::string::npos);
}

TEST_F(WorkerCoreTest, EachGatewaysFailureIsLoggedOnceAndOnceMoreWhenItIsAnother) {
  core_.Told({DirectoryEvent::Kind::kPut, GatewayKey({5}), GatewayRecord({"10.0.0.5", 8001})});
  Seconds now = kNow;
  const auto logged = [&](const std::string& first, const std::string& second) {
    core_.Tick(now += Seconds(10));
    for (const DialAction& dial : Of<DialAction>(core_.TakeActions())) {
      core_.Ended(dial.link, dial.address.host == "10.0.0.1" ? first : second, now);
    }
    return Of<LogAction>(core_.TakeActions()).size();
  };
  EXPECT_EQ(logged("refused", "no route"), 2u);
  EXPECT_EQ(logged("refused", "no route"), 0u);
  EXPECT_EQ(logged("refused", "refused"), 1u);
  core_.Tick(now += Seconds(10));
  for (const DialAction& dial : Of<DialAction>(core_.TakeActions())) {
    core_.Connected(dial.link, false);
    core_.Receive(dial.link, WelcomeMessage{{dial.link}}, now);
    core_.TakeActions();
    core_.Ended(dial.link, "refused", now);
    EXPECT_EQ(Of<LogAction>(core_.TakeActions()).size(), 1u) << "it was there in between";
  }
}

TEST_F(WorkerCoreTest, GatewaysThatAreAnnouncedAreDialled) {
  Join();
  const std::string key = GatewayKey({5});
  core_.Told({DirectoryEvent::Kind::kPut, key, GatewayRecord({"10.0.0.5", 8001})});
  core_.Tick(kNow);
  const auto dials = Of<DialAction>(core_.TakeActions());
  ASSERT_EQ(dials.size(), 1u);
  EXPECT_EQ(dials[0].address.host, "10.0.0.5");
  core_.Told({DirectoryEvent::Kind::kGone, key, ""});
  core_.Ended(dials[0].link, "refused", kNow);
  core_.Tick(kNow + Seconds(10));
  EXPECT_TRUE(Of<DialAction>(core_.TakeActions()).empty());
}

// A prompt of two full pages, through its one step.
void ComputeTwoPages(WorkerCore& core) {
  ServeMessage serve{{kGateway, 1, 1}, {.max_tokens = 1}};
  for (TokenId token = 0; token < 40; ++token) serve.request.prompt.push_back(token);
  core.Receive(kLink, RelayMessage{kGateway, core.self(), serve}, kNow);
  ASSERT_NE(core.BeginStep(kNow), nullptr);
  core.EndStep({{.sampled = SampledToken{.token = 3}}}, kNow);
  if (core.prefixes() != nullptr) core.prefixes()->Tick(kNow);
  core.Tick(kNow);
}

TEST(WorkerCoreNewsTest, TellsItsPagesWhereItPublishesThem) {
  WorkerCoreOptions options = Options();
  options.tell_pages = true;
  WorkerCore core(options, kNow);
  core.BeNew(kSelf, {.address = "10.0.0.2:7000"}, {}, {.live = "tcp://10.0.0.2:5557"});
  core.Tick(kNow);
  core.TakeActions();
  core.Connected(kLink, false);
  const auto hellos = Sent<HelloMessage>(core.TakeActions());
  ASSERT_EQ(hellos.size(), 1u);
  EXPECT_EQ(hellos[0].events.live, "tcp://10.0.0.2:5557");
  EXPECT_FALSE(hellos[0].pool);
  ComputeTwoPages(core);
  EXPECT_EQ(core.TakeNews(1).size(), 1u);
  const auto events = core.TakeNews(100);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(std::get<StoredEvent>(events[0]).tokens.size(), size_t{kBlockTokens});
  core.BeNew(kAgain, {.address = "10.0.0.2:7000"});
  EXPECT_TRUE(core.TakeNews(100).empty()) << "a new life holds nothing";
}

// What nobody asks about is dropped: with tiers the scheduler reports pages all the same.
TEST(WorkerCoreNewsTest, KeepsNothingForNobody) {
  WorkerCoreOptions options = Options();
  options.scheduler.report_pages = true;
  WorkerCore core(options, kNow);
  core.BeNew(kSelf, {.address = "10.0.0.2:7000"},
             PrefixLoaderOptions{.tiers = {.host_pages = 8}, .page = Bytes(100)});
  ComputeTwoPages(core);
  ASSERT_NE(core.prefixes(), nullptr);
  for (const TierAction& action : core.prefixes()->TakeActions()) {
    core.prefixes()->SaveEnded(action.id, true, kNow);
  }
  core.Tick(kNow);
  EXPECT_EQ(core.prefixes()->stats().tiers.host_pages, 2);
  EXPECT_TRUE(core.prefixes()->TakePageChanges().empty());
  EXPECT_TRUE(core.prefixes()->TakeTierEvents().empty());
  EXPECT_TRUE(core.TakeNews(100).empty());
  EXPECT_EQ(core.news().held, 0);
}

}  // namespace
}  // namespace divisi
