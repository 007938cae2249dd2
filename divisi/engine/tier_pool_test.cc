// The remote pool under the real engine and model: other processes go on with what is in it, and
// what is wrong with it costs time alone.
#include <gtest/gtest.h>

#include "divisi/engine/tier_process_fixture.h"

namespace divisi {
namespace {

using TierPoolTest = TierProcessTest;

TEST_F(TierPoolTest, AnotherProcessGoesOnWithWhatIsInThePool) {
  for (const Bytes host : {Bytes(0), kHost}) {
    const auto pool = std::make_shared<ScriptedPool>();
    Process first({.host = host, .pool = pool});
    Process second({.host = host, .pool = pool});
    for (const int64_t length : {15, 16, 17, 33, 100, 161}) {
      SCOPED_TRACE(length);
      const auto prompt = SomeTokens(length, static_cast<TokenId>(length));
      std::vector<TokenId> turn = prompt;
      for (const SampledToken& token : first.Run(prompt).tokens) turn.push_back(token.token);
      const auto more = SomeTokens(20, 999);
      turn.insert(turn.end(), more.begin(), more.end());
      first.Settle();
      const Answer answer = second.Run(turn);
      EXPECT_EQ(answer.cached, (length + 11) / 16 * 16);
      ExpectSame(answer, WithoutCache(turn));
      second.PushOut();
    }
    const EngineStats stats = second.stats();
    EXPECT_EQ(stats.prefixes->loads_failed, 0);
    EXPECT_EQ(stats.prefixes->pages_read, stats.prefixes->pages_used);
    EXPECT_TRUE(host > Bytes(0) || stats.tiers->pool->hits == stats.prefixes->pages_read);
    EXPECT_EQ(stats.tiers->pool->buffers_used, 0);
  }
}

TEST_F(TierPoolTest, DamagedObjectsOfThePoolAreComputedAnewAndPutAgain) {
  const auto pool = std::make_shared<ScriptedPool>();
  const auto prompt = SomeTokens(150, 11);
  Answer first;
  {
    Process process({.pool = pool});
    first = process.Run(prompt);
    process.Settle();
  }
  const auto keys = pool->Keys();
  ASSERT_GE(keys.size(), 9);
  for (size_t i = 0; i < keys.size(); ++i) {
    auto object = *pool->Of(keys[i]);
    object[i % 2 == 0 ? 4096 + i * 1000 : 20 + i * 8] ^= std::byte{0x40};
    if (i % 3 == 0) object.resize(4096 + i * 1000);
    pool->Set(keys[i], object);
  }
  Process process({.pool = pool});
  // Each time the first page that is bad is found, and those behind it are not looked at.
  for (size_t i = 0; i < keys.size() + 2; ++i) {
    ExpectSame(process.Run(prompt), first);
    process.Settle();
    process.PushOut();
    process.Settle();
  }
  EXPECT_EQ(process.stats().tiers->pool->bad, 9);  // Those of the prompt
  const Answer again = process.Run(prompt);
  EXPECT_EQ(again.cached, 144);
  ExpectSame(again, first);
}

TEST_F(TierPoolTest, APoolThatIsSilentOrFailsCostsTimeAlone) {
  const auto pool = std::make_shared<ScriptedPool>();
  const auto prompt = SomeTokens(150, 11);
  const Answer expected = WithoutCache(prompt);
  Process process({.hurried = true, .pool = pool});
  ExpectSame(process.Run(prompt), expected);
  process.Settle();
  pool->silent = true;
  process.PushOut();
  ExpectSame(process.Run(prompt), expected);
  pool->silent = false;
  pool->error = static_cast<int>(Code::kUnavailable);
  process.PushOut();
  ExpectSame(process.Run(prompt), expected);
  pool->error = 0;
  const SteadyClock clock;
  for (const Seconds start = clock.Now(); clock.Now() - start < Seconds(90);) {
    process.PushOut();
    const Answer again = process.Run(prompt);
    ExpectSame(again, expected);
    if (again.cached == 144) return;
  }
  ADD_FAILURE() << "the pool is not used again";
}

}  // namespace
}  // namespace divisi
