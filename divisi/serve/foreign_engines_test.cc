#include "divisi/serve/foreign_engines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "divisi/core/check.h"

namespace divisi {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ForeignEnginesTest, SettingsAreRead) {
  const auto all = ParseForeignEngine("a=vllm:tcp://h:1+tcp://h:2;block=32;seed=0;topic=kv@;bytes");
  ASSERT_TRUE(all.ok()) << all.error().message;
  EXPECT_EQ(all->name, "a");
  EXPECT_EQ(all->source.endpoint, "tcp://h:1");
  EXPECT_EQ(all->source.replay_endpoint, "tcp://h:2");
  EXPECT_EQ(all->source.topic, "kv@");
  EXPECT_EQ(all->hashes.scheme, HashScheme::kVllm);
  EXPECT_EQ(all->hashes.block_tokens, 32);
  EXPECT_EQ(all->hashes.seed, "0");
  EXPECT_TRUE(all->hashes.digest_bytes);
  const auto least = ParseForeignEngine("b=sglang:tcp://[::1]:7");
  ASSERT_TRUE(least.ok()) << least.error().message;
  EXPECT_EQ(least->source.endpoint, "tcp://[::1]:7");
  EXPECT_EQ(least->source.replay_endpoint, "");
  EXPECT_EQ(least->hashes.block_tokens, 16);
}

TEST(ForeignEnginesTest, WrongSettingsAreNamed) {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "no name"},
      {"a", "no name"},
      {"=vllm:tcp://h:1", "no name"},
      {"a=tcp://h:1", "unknown scheme 'tcp'"},
      {"a=vllm:", "no endpoint"},
      {"a=vllm:;block=16", "no endpoint"},
      {"a=vllm:tcp://h:1;block=0", "'block=0'"},
      {"a=vllm:tcp://h:1;block=16x", "'block=16x'"},
      {"a=vllm:tcp://h:1;bytes=1", "'bytes=1'"},
      {"a=vllm:tcp://h:1;sed=1", "'sed=1'"},
  };
  for (const auto& [text, why] : kCases) {
    const auto engine = ParseForeignEngine(text);
    ASSERT_FALSE(engine.ok()) << text;
    EXPECT_THAT(engine.error().message, HasSubstr(why)) << text;
  }
}

std::vector<TokenId> Rising(int64_t count) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(i));
  return tokens;
}

class FollowedTest : public testing::Test {
 protected:
  std::unique_ptr<EventPublisher> Publisher() {
    auto publisher = EventPublisher::Open(
        {.endpoint = "tcp://127.0.0.1:0", .replay_endpoint = "tcp://127.0.0.1:0"}, clock_, logger_);
    CHECK(publisher.ok(), "{}", publisher.error().message);
    return *std::move(publisher);
  }
  static ForeignEngine Engine(const std::string& name, const EventPublisher& at,
                              HashScheme scheme) {
    return {.name = name,
            .source = {.endpoint = at.endpoint(), .replay_endpoint = at.replay_endpoint()},
            .hashes = {.scheme = scheme, .seed = "0"}};
  }
  // Until the engine at `index` has so many blocks.
  bool Has(ForeignEngines& engines, size_t index, int64_t blocks) {
    for (int i = 0; i < 2000; ++i) {
      engines.Absorb(clock_.Now());
      if (engines.statuses()[index].blocks == blocks) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  SteadyClock clock_;
  Logger logger_{Logger::Options{.least = LogLevel::kError}};
};

// The numbers are those that vLLM with PYTHONHASHSEED=0 gives to blocks of 16 tokens.
TEST_F(FollowedTest, WhatVllmAndSglangHoldOfAPrompt) {
  const auto vllm = Publisher(), sglang = Publisher();
  auto followed = ForeignEngines::Follow(
      {Engine("v", *vllm, HashScheme::kVllm), Engine("s", *sglang, HashScheme::kSglang)}, clock_,
      logger_);
  ASSERT_TRUE(followed.ok()) << followed.error().message;
  ForeignEngines& engines = **followed;
  const Request request{.id = 1, .prompt = Rising(50)};
  EXPECT_THAT(engines.Holding(request), IsEmpty());

  vllm->Publish({StoredEvent{.hashes = {EventHash(uint64_t{12687895063098490012u}),
                                        EventHash(uint64_t{1814341696565857452u})},
                             .block_size = 16,
                             .medium = "GPU"}});
  sglang->Publish({StoredEvent{.hashes = {SglangEventHash(SglangDigests(request.prompt, 16)[0])},
                               .block_size = 16,
                               .medium = "CPU_PINNED"}});
  ASSERT_TRUE(Has(engines, 0, 2));
  ASSERT_TRUE(Has(engines, 1, 1));
  EXPECT_THAT(engines.Holding(request), ElementsAre(ForeignPrefix{"v", 32, EventTier::kDevice},
                                                    ForeignPrefix{"s", 16, EventTier::kHost}));
  EXPECT_THAT(engines.Metrics("m=\"x\""),
              HasSubstr("divisi:foreign_kv_blocks{m=\"x\",engine=\"v\"} 2\n"));
  // Another prompt, and another tenant's.
  EXPECT_THAT(engines.Holding({.id = 2, .prompt = std::vector<TokenId>(50, 7)}), IsEmpty());
  EXPECT_THAT(engines.Holding({.id = 3, .prompt = Rising(50), .cache_salt = "t"}), IsEmpty());

  vllm->Publish({ClearedEvent{}});
  ASSERT_TRUE(Has(engines, 0, 0));
  EXPECT_THAT(engines.Holding(request), ElementsAre(ForeignPrefix{"s", 16, EventTier::kHost}));
}

TEST_F(FollowedTest, AnEngineThatIsGoneHoldsNothing) {
  auto vllm = Publisher();
  auto followed = ForeignEngines::Follow({Engine("v", *vllm, HashScheme::kVllm)}, clock_, logger_);
  ASSERT_TRUE(followed.ok()) << followed.error().message;
  vllm->Publish({StoredEvent{.hashes = {EventHash(uint64_t{1})}, .block_size = 16}});
  ASSERT_TRUE(Has(**followed, 0, 1));
  vllm.reset();
  EXPECT_TRUE(Has(**followed, 0, 0));
}

TEST_F(FollowedTest, NamesAreTheirOwnAndEndpointsAreSome) {
  const auto publisher = Publisher();
  const ForeignEngine one = Engine("v", *publisher, HashScheme::kVllm);
  const auto twice = ForeignEngines::Follow({one, one}, clock_, logger_);
  ASSERT_FALSE(twice.ok());
  EXPECT_THAT(twice.error().message, HasSubstr("two engines have the name v"));
  ForeignEngine nowhere = one;
  nowhere.source.endpoint = "10.0.0.7";
  EXPECT_FALSE(ForeignEngines::Follow({nowhere}, clock_, logger_).ok());
}

}  // namespace
}  // namespace divisi
