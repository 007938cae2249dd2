// Turn 2 of a conversation against turn 1's pages, wherever they are by then: over lengths around
// the edges of pages, tenants' salts, tiers, the pool, another worker's memory, restarts and
// evictions. Its tokens are those of a run without a cache, and what was reused is what can be: the
// full pages of the prefix, up to the first that is gone.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "divisi/engine/tier_process_fixture.h"

namespace divisi {
namespace {

// Where turn 1's pages are when turn 2 comes.
enum class Place {
  kDevice,
  kHost,
  kDisk,
  kDiskAfterRestart,
  kPool,          // Alone: there is no host memory.
  kPoolOfOthers,  // Another process put them there,
  kPoolCut,       // and the last one gave way since.
  kPoolBeheaded,  // The first one did.
  kPeer,
  kPeerCut,
  kPeerBeheaded,
  kNowhere
};
const char* const kPlaces[] = {"Device", "Host",         "Disk",         "DiskAfterRestart",
                               "Pool",   "PoolOfOthers", "PoolCut",      "PoolBeheaded",
                               "Peer",   "PeerCut",      "PeerBeheaded", "Nowhere"};
constexpr int64_t kLengths[] = {1, 4, 5, 15, 16, 17, 20, 21, 33, 127, 128, 129};
// Where some pages are gone: one to nine are left, or none.
constexpr int64_t kFewLengths[] = {4, 5, 21, 129};

bool IsPeer(Place place) {
  return place == Place::kPeer || place == Place::kPeerCut || place == Place::kPeerBeheaded;
}
bool IsPool(Place place) {
  return place == Place::kPool || place == Place::kPoolOfOthers || place == Place::kPoolCut ||
         place == Place::kPoolBeheaded;
}

class TierMatrixTest : public TierProcessTest, public testing::WithParamInterface<int> {
 protected:
  static Place place() { return static_cast<Place>(GetParam()); }
  static bool IsCut() { return place() == Place::kPoolCut || place() == Place::kPeerCut; }
  static bool IsBeheaded() {
    return place() == Place::kPoolBeheaded || place() == Place::kPeerBeheaded;
  }
  // What computes turn 1.
  TierSizes FirstSizes() const {
    switch (place()) {
      case Place::kDisk:  // Host memory for a few pages: the rest goes on.
        return {.host = Bytes(8 * 24576), .disk = directory_};
      case Place::kDiskAfterRestart:
        return {.host = kHost, .disk = directory_};
      case Place::kPool:
        return {.pool = others_};
      case Place::kNowhere:
        return {};
      default:  // What another worker has a pool takes in its place.
        return {.host = kHost, .pool = IsPool(place()) || IsPeer(place()) ? others_ : nullptr};
    }
  }
  // What computes turn 2, where it is another process.
  std::optional<TierSizes> SecondSizes() const {
    if (place() == Place::kDiskAfterRestart) return FirstSizes();
    if (IsPeer(place())) return TierSizes{.host = kHost, .peer = others_};
    if (IsPool(place()) && place() != Place::kPool) return FirstSizes();
    return std::nullopt;
  }

  static void SetUpTestSuite() {
    reference_ = std::make_unique<Process>(TierSizes{.share = false});
  }
  static void TearDownTestSuite() {
    reference_.reset();
    answers_.clear();
  }
  static Answer Expected(const std::vector<TokenId>& prompt) {
    const auto [answer, is_new] = answers_.try_emplace(prompt);
    if (is_new) answer->second = reference_->Run(prompt);
    return answer->second;
  }

  // Takes away what the place says. What is left of `full` pages for turn 2 to use.
  int64_t Cut(const std::vector<TokenId>& turn, int64_t full) {
    if (place() == Place::kNowhere) return 0;
    if (full == 0 || (!IsCut() && !IsBeheaded())) return full;
    std::vector<BlockKey> keys;
    const BlockKey root = RootKey({.page_format = "test", .tenant_salt = kTenant});
    ExtendKeys(root, turn, static_cast<size_t>(full), keys);
    EXPECT_TRUE(others_->Erase(keys[IsCut() ? keys.size() - 1 : 0]));
    return IsCut() ? full - 1 : 0;
  }

  // shown: pages that the other worker is said to have.
  Request Asking(const std::vector<TokenId>& prompt, const std::string& salt, int64_t shown) const {
    Request request{.prompt = prompt, .max_tokens = 12, .cache_salt = salt};
    if (IsPeer(place())) request.peer = PrefixPeer{.address = "10.0.0.1:7", .pages = shown};
    return request;
  }

  void RunConversation(int64_t length);

  static constexpr const char* kTenant = "tenant";
  static inline std::unique_ptr<Process> reference_;
  static inline std::map<std::vector<TokenId>, Answer> answers_;
  const std::shared_ptr<ScriptedPool> others_ = std::make_shared<ScriptedPool>();
  std::unique_ptr<Process> first_;
};

// What a client sends in turn 2: all of turn 1, and more.
std::vector<TokenId> TurnTwo(const std::vector<TokenId>& prompt, const Answer& first) {
  std::vector<TokenId> turn = prompt;
  for (const SampledToken& token : first.tokens) turn.push_back(token.token);
  const auto more = SomeTokens(20, 999);
  turn.insert(turn.end(), more.begin(), more.end());
  return turn;
}

void TierMatrixTest::RunConversation(int64_t length) {
  if (!first_) first_ = std::make_unique<Process>(FirstSizes());
  const auto prompt = SomeTokens(length, static_cast<TokenId>(length));
  const Answer first = first_->Run(prompt, kTenant);
  ExpectSame(first, Expected(prompt));
  const std::vector<TokenId> turn = TurnTwo(prompt, first);
  first_->Settle();
  const auto sizes = SecondSizes();
  if (!sizes && place() != Place::kDevice) first_->PushOut();
  first_->Settle();
  const int64_t shown = (length + 11) / 16;  // The last token's K and V were never computed.
  const int64_t left = Cut(turn, shown);
  if (place() == Place::kDiskAfterRestart) first_.reset();  // A directory is one process's.
  const auto other = sizes ? std::make_unique<Process>(*sizes) : nullptr;
  Process& second = other ? *other : *first_;
  // Another tenant finds nothing, and leaves nothing that this one would find.
  const Answer stranger = second.Run(Asking(turn, "other", shown));
  EXPECT_EQ(stranger.cached, 0);
  const Answer answer = second.Run(Asking(turn, kTenant, shown));
  EXPECT_EQ(answer.cached, left * 16);
  ExpectSame(stranger, Expected(turn));
  ExpectSame(answer, Expected(turn));
}

TEST_P(TierMatrixTest, TurnTwoHasTheTokensOfARunWithoutACache) {
  const std::span<const int64_t> all = kLengths, few = kFewLengths;
  for (const int64_t length : IsCut() || IsBeheaded() ? few : all) {
    SCOPED_TRACE(length);
    RunConversation(length);
  }
  if (!first_ || !first_->stats().prefixes) return;
  const PrefixLoaderStats stats = *first_->stats().prefixes;
  EXPECT_LE(stats.pages_used, stats.pages_read);
}

INSTANTIATE_TEST_SUITE_P(Places, TierMatrixTest,
                         testing::Range(0, static_cast<int>(std::size(kPlaces))),
                         [](const auto& place) { return kPlaces[place.param]; });

}  // namespace
}  // namespace divisi
