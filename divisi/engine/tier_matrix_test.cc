// Turn 2 of a conversation against turn 1's pages, wherever they are by then: over lengths around
// the edges of pages, tenants' salts, tiers, restarts and evictions. Its tokens are those of a run
// without a cache, and what was reused is what can be: the full pages of the prefix.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "divisi/core/format.h"
#include "divisi/engine/tier_process_fixture.h"

namespace divisi {
namespace {

// Where turn 1's pages are when turn 2 comes.
enum class Place { kDevice, kHost, kDisk, kDiskAfterRestart, kNowhere };
const char* const kPlaces[] = {"Device", "Host", "Disk", "DiskAfterRestart", "Nowhere"};

using Cell = std::tuple<Place, int64_t>;  // And the length of turn 1's prompt

class TierMatrixTest : public TierProcessTest, public testing::WithParamInterface<Cell> {
 protected:
  TierSizes Sizes(Place place) const {
    switch (place) {
      case Place::kDevice:
      case Place::kHost:
        return {.host = kHost};
      case Place::kDisk:  // Host memory for a few pages: the rest goes on.
        return {.host = Bytes(8 * 24576), .disk = directory_};
      case Place::kDiskAfterRestart:
        return {.host = kHost, .disk = directory_};
      case Place::kNowhere:
        return {};
    }
    return {};
  }
};

// What a client sends in turn 2: all of turn 1, and more.
std::vector<TokenId> TurnTwo(const std::vector<TokenId>& prompt, const Answer& first) {
  std::vector<TokenId> turn = prompt;
  for (const SampledToken& token : first.tokens) turn.push_back(token.token);
  const auto more = SomeTokens(20, 999);
  turn.insert(turn.end(), more.begin(), more.end());
  return turn;
}

TEST_P(TierMatrixTest, TurnTwoHasTheTokensOfARunWithoutACache) {
  const auto [place, length] = GetParam();
  auto process = std::make_unique<Process>(Sizes(place));
  const auto prompt = SomeTokens(length, static_cast<TokenId>(length));
  const Answer first = process->Run(prompt, "tenant");
  ExpectSame(first, WithoutCache(prompt));
  const std::vector<TokenId> turn = TurnTwo(prompt, first);
  process->Settle();
  if (place != Place::kDevice) process->PushOut();
  process->Settle();
  if (place == Place::kDiskAfterRestart) {
    process.reset();
    process = std::make_unique<Process>(Sizes(place));
  }
  // Another tenant finds nothing, and leaves nothing that this one would find.
  const Answer stranger = process->Run(turn, "other");
  EXPECT_EQ(stranger.cached, 0);
  const Answer second = process->Run(turn, "tenant");
  // Its last token's K and V were never computed.
  const int64_t full = (length + 11) / 16 * 16;
  EXPECT_EQ(second.cached, place == Place::kNowhere ? 0 : full);
  const Answer expected = WithoutCache(turn);
  ExpectSame(stranger, expected);
  ExpectSame(second, expected);
}

std::string Name(const testing::TestParamInfo<Cell>& cell) {
  return Format("{}{}", kPlaces[static_cast<int>(std::get<0>(cell.param))],
                std::get<1>(cell.param));
}

INSTANTIATE_TEST_SUITE_P(
    Cells, TierMatrixTest,
    testing::Combine(testing::Values(Place::kDevice, Place::kHost, Place::kDisk,
                                     Place::kDiskAfterRestart, Place::kNowhere),
                     testing::Values(1, 4, 5, 15, 16, 17, 20, 21, 33, 127, 128, 129)),
    Name);

}  // namespace
}  // namespace divisi
