// What a client says of its conversation goes with the request to where its pages are judged.
#include <gtest/gtest.h>

#include "divisi/sim/prefix_loader_fixture.h"

namespace divisi {
namespace {

constexpr int64_t kTokens = 64, kPages = 4;

class PrefixLoaderSessionTest : public testing::Test {
 protected:
  // Host memory for three such prompts; nothing is awaited.
  PrefixLoaderSessionTest() {
    setup_.scheduler.blocks = 24;
    setup_.loader.tiers = {
        .host_pages = 3 * kPages, .disk_pages = 100, .budget = {.burst_pages = 100}};
  }

  void Run(Host& host, const Request& request) {
    ASSERT_TRUE(host.Add(request).ok());
    host.RunAll();
  }
  int64_t OnDisk(Host& host, const Request& request) const {
    std::vector<BlockKey> keys;
    ExtendKeys(RootKey(KeySpaceOf(setup_.scheduler, request)), request.prompt, kPages, keys);
    return std::ranges::count_if(
        keys, [&](const BlockKey& key) { return host.In(Tier::kDisk).contains(key); });
  }

  HostSetup setup_;
  Tiers tiers_;
};

TEST_F(PrefixLoaderSessionTest, PagesOfAnOpenOneGoToTheDiskBeforeThoseOfAClosedOne) {
  Host host(setup_, tiers_);
  const Request plain = Prompt(1, kTokens);
  Request closed = Prompt(2, kTokens, 1000), open = Prompt(3, kTokens, 2000);
  closed.session = SessionState::kClosed;
  open.session = SessionState::kOpen;
  for (const Request& request : {plain, closed, open}) Run(host, request);
  EXPECT_TRUE(host.In(Tier::kDisk).empty());
  Run(host, Prompt(4, 3 * kTokens, 3000));  // All of them leave host memory.
  EXPECT_EQ(OnDisk(host, open), kPages);
  EXPECT_EQ(OnDisk(host, closed), 0);
}

}  // namespace
}  // namespace divisi
