#include "divisi/control/cluster_message.h"

#include <gtest/gtest.h>

#include <limits>

namespace divisi {
namespace {

Request Sample() {
  Request request;
  request.prompt = {1, 2, 3};
  request.sampling = {.temperature = 0.5, .top_k = 7, .seed = 99, .top_logprobs = 2};
  request.sampling.logit_bias = {{5, -1.5f}};
  request.max_tokens = 17;
  request.stop_token_ids = {4};
  request.prompt_logprobs = 1;
  request.cache_salt = "salt";
  request.session = SessionState::kClosed;
  request.peer = PrefixPeer{"10.0.0.1:7200", 3};
  return request;
}

ReportMessage Report() {
  ReportMessage report{.running = 1, .pages_pinned = 12};
  report.counters.expired_leases = 13;
  report.counters.pool_failures = 14;
  report.pool_ready = 15;
  report.counters.tail_times.Add(Seconds(0.3));
  report.rates.per_token = Seconds(1.5e-4);
  report.rates.read[2] = BytesPerSecond(3e9);
  report.rates.read_measured[2] = true;
  report.rates.lookup = Seconds(0.01);
  return report;
}

std::vector<ClusterMessage> Samples() {
  const TransferId id{{7}, 8, 9};
  const SampledToken token{.token = 3, .logprob = -0.25f, .top = {{3, -0.25f}, {4, -2.0f}}};
  std::vector<ClusterMessage> all = {
      HelloMessage{.node = {1},
                   .role = WorkerRole::kDecode,
                   .name = "host:1",
                   .compatibility = {.model = "abc", .tokenizer = "def"},
                   .pages = 5,
                   .context = 80,
                   .data_address = "tcp",
                   .data_descriptor = {std::byte{1}, std::byte{2}},
                   .gateways = 2,
                   .events = {"tcp://10.0.0.2:5557", "tcp://10.0.0.2:5558", "kv@w@m"},
                   .pool = true},
      WelcomeMessage{{3}},
      RejectMessage{"no", true},
      PingMessage{},
      PeerUpMessage{.node = {4}, .data_address = "x"},
      PeerGoneMessage{{4}, PeerLoss::kDoubted},
      Report(),
      QueryMessage{{"drain", "w1"}},
      AnswerMessage{true, "{}"},
      LeaveMessage{Seconds(30), true}};
  const std::vector<HandoffMessage> handoff = {
      ReserveMessage{id, Sample(), {2}},
      ReservedMessage{id, {4, 5}, 1},
      PrefillMessage{id, Sample(), {3}, {4, 5}, 1},
      HandoverMessage{id, token, {token, token}, {5, 6, 7, 8}},
      TakenMessage{id},
      ServeMessage{id, Sample()},
      TokensMessage{.id = id, .start = 2, .tokens = {token}, .finish = FinishReason::kStop},
      TokensMessage{.id = id, .tokens = {token}, .found = PagesFound{1, 2, 3, 4, 5}},
      TokensMessage{.id = id, .finish = FinishReason::kError, .error = Error{Code::kDataLoss, "x"}},
      RefusedMessage{id, Error{Code::kResourceExhausted, "full"}},
      RenewMessage{id, 6},
      AbortMessage{id},
      StoppedMessage{id}};
  for (const HandoffMessage& message : handoff) all.push_back(RelayMessage{{1}, {2}, message});
  return all;
}

TEST(ClusterMessageTest, EveryMessageComesThrough) {
  for (const ClusterMessage& message : Samples()) {
    const auto bytes = EncodeClusterMessage(message);
    const auto again = DecodeClusterMessage(bytes);
    ASSERT_TRUE(again.ok()) << message.index();
    EXPECT_EQ(again->index(), message.index());
    EXPECT_EQ(EncodeClusterMessage(*again), bytes);
  }
  const auto hello = DecodeClusterMessage(EncodeClusterMessage(Samples().front()));
  EXPECT_EQ(std::get<HelloMessage>(*hello).context, 80);
  EXPECT_EQ(std::get<HelloMessage>(*hello).events.replay, "tcp://10.0.0.2:5558");
  const auto relay = DecodeClusterMessage(
      EncodeClusterMessage(RelayMessage{{1}, {2}, ServeMessage{{{7}, 8, 9}, Sample()}}));
  const auto& request = std::get<ServeMessage>(std::get<RelayMessage>(*relay).message).request;
  EXPECT_EQ(request.prompt, Sample().prompt);
  EXPECT_EQ(request.sampling.seed, 99u);
  EXPECT_EQ(request.sampling.logit_bias, Sample().sampling.logit_bias);
  EXPECT_EQ(request.cache_salt, "salt");
  EXPECT_EQ(request.session, SessionState::kClosed);
  EXPECT_EQ(request.peer, Sample().peer);
}

TEST(ClusterMessageTest, WhatWasFoundAndMeasuredComesThrough) {
  const auto again = DecodeClusterMessage(EncodeClusterMessage(Report()));
  const WorkerRates& rates = std::get<ReportMessage>(*again).rates;
  EXPECT_EQ(rates.read, Report().rates.read);
  EXPECT_EQ(rates.read_measured, Report().rates.read_measured);
  EXPECT_EQ(rates.lookup, Seconds(0.01));
  const TokensMessage tokens{.id = {{7}, 8, 9}, .found = PagesFound{1, 2, 3, 4, 5}};
  const auto relay = DecodeClusterMessage(EncodeClusterMessage(RelayMessage{{1}, {2}, tokens}));
  EXPECT_EQ(std::get<TokensMessage>(std::get<RelayMessage>(*relay).message).found, tokens.found);
}

TEST(ClusterMessageTest, RefusesWhatIsCutOrLongerThanItself) {
  for (const ClusterMessage& message : Samples()) {
    std::vector<std::byte> bytes = EncodeClusterMessage(message);
    for (size_t cut = 0; cut < bytes.size(); ++cut) {
      EXPECT_FALSE(DecodeClusterMessage(std::span(bytes).first(cut)).ok());
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(DecodeClusterMessage(bytes).ok());
  }
  const std::byte unknown[] = {std::byte{200}};
  EXPECT_FALSE(DecodeClusterMessage(unknown).ok());
}

// What is whole and makes no sense: a worker would compute with it, or a gateway add it up.
TEST(ClusterMessageTest, RefusesWhatIsOutOfBounds) {
  const auto read = [](const ClusterMessage& message) {
    return DecodeClusterMessage(EncodeClusterMessage(message)).ok();
  };
  const auto relayed = [&](HandoffMessage message) {
    return read(RelayMessage{{1}, {2}, std::move(message)});
  };
  const auto prefill = [&](int64_t present) {
    return relayed(PrefillMessage{{{7}, 8, 9}, Sample(), {3}, {4, 5}, present});
  };
  EXPECT_TRUE(prefill(2));
  EXPECT_FALSE(prefill(-1));
  EXPECT_FALSE(prefill(3));
  EXPECT_FALSE(relayed(ReservedMessage{{{7}, 8, 9}, {4, 5}, 3}));
  for (const int64_t number :
       {int64_t{-1}, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    EXPECT_FALSE(relayed(TokensMessage{.id = {{7}, 8, 9}, .start = number}));
    EXPECT_FALSE(relayed(RenewMessage{{{7}, 8, 9}, number}));
  }
  Request request = Sample();
  request.sampling.temperature = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(relayed(ServeMessage{{{7}, 8, 9}, request}));
  request = Sample();
  request.sampling.top_p = 0;
  EXPECT_FALSE(relayed(ServeMessage{{{7}, 8, 9}, request}));
  request = Sample();
  request.session = static_cast<SessionState>(kSessionStates);
  EXPECT_FALSE(relayed(ServeMessage{{{7}, 8, 9}, request}));
  EXPECT_FALSE(read(LeaveMessage{Seconds(std::numeric_limits<double>::quiet_NaN())}));
  EXPECT_FALSE(read(HelloMessage{.step_tokens = 0}));
  EXPECT_FALSE(read(HelloMessage{.step_tokens = std::numeric_limits<int64_t>::max()}));
  EXPECT_TRUE(read(HelloMessage{.context = std::numeric_limits<int32_t>::max()}));
  EXPECT_FALSE(read(HelloMessage{.context = int64_t{1} << 31}));
  EXPECT_FALSE(read(HelloMessage{.context = -1}));
  EXPECT_FALSE(read(HelloMessage{.events = {.live = std::string(2000, 'x')}}));
  ReportMessage report;
  report.counters.prefill_tokens = -1;
  EXPECT_FALSE(read(report));
}

TEST(ClusterMessageTest, NamesTheFieldThatDiffers) {
  const Compatibility here{.model = "a", .tokenizer = "t", .kv_type = "bfloat16", .kv_layout = "l"};
  EXPECT_EQ(here.DifferenceFrom(here), "");
  const auto with = [&](auto change) {
    Compatibility there = here;
    change(there);
    return here.DifferenceFrom(there);
  };
  EXPECT_NE(with([](auto& c) { c.protocol = 9; }).find("protocol"), std::string::npos);
  EXPECT_NE(with([](auto& c) { c.model = "b"; }).find("model"), std::string::npos);
  EXPECT_NE(with([](auto& c) { c.tokenizer = "b"; }).find("tokenizer"), std::string::npos);
  EXPECT_NE(with([](auto& c) { c.kv_type = "b"; }).find("KV type"), std::string::npos);
  EXPECT_NE(with([](auto& c) { c.kv_layout = "b"; }).find("layout"), std::string::npos);
  EXPECT_NE(with([](auto& c) { c.page_tokens = 32; }).find("page size"), std::string::npos);
  EXPECT_NE(with([](auto& c) { c.page_format = "2"; }).find("page format"), std::string::npos);
}

}  // namespace
}  // namespace divisi
