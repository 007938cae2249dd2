// A worker's host memory read by another over UCX and TCP, both in this process.
#include "divisi/control/page_export.h"

#include <gtest/gtest.h>

#include <atomic>

#include "divisi/control/store_client.h"
#include "divisi/core/clock.h"
#include "divisi/core/format.h"
#include "divisi/core/random.h"
#include "divisi/kv/remote_store.h"
#include "divisi/net/ucx_transport.h"

namespace divisi {
namespace {

constexpr PageShape kShape{.type = ElementType::kF32, .layers = 3, .layer_bytes = 4096};
constexpr BlockKey kModel{.bytes = {7}};

const SteadyClock& TheClock() {
  static const SteadyClock clock;
  return clock;
}

std::unique_ptr<Transport> OpenAs(NodeId self) {
  return OpenUcxTransport({.self = self, .silence = Seconds(2)}, TheClock()).value();
}

BlockKey KeyOf(int number) { return {.bytes = {static_cast<uint8_t>(number), 1}}; }

PageHeader HeaderOf(int number) {
  return {.shape = kShape, .position = number * 16, .key = KeyOf(number), .model = kModel};
}

std::vector<std::byte> PayloadOf(int number) {
  std::vector<std::byte> payload(static_cast<size_t>(kShape.PayloadBytes()));
  for (size_t i = 0; i < payload.size(); ++i) {
    payload[i] = static_cast<std::byte>(static_cast<size_t>(number) * 29 + i * i % 241);
  }
  return payload;
}

// The worker whose host memory is read.
struct Giver {
  Logger logger{{.least = LogLevel::kError}};
  std::shared_ptr<HostStore> host;
  std::unique_ptr<PageExport> served;

  explicit Giver(int pages, Bytes memory = Bytes(1 << 20)) {
    host = HostStore::Create(kShape, Bytes(kShape.PayloadBytes() * 64)).value();
    for (int i = 0; i < pages; ++i) EXPECT_TRUE(host->Put(HeaderOf(i), PayloadOf(i)).ok());
    const NodeId self{SystemRandom() | 1};
    served = MakePageExport({.self = self, .memory = memory}, OpenAs(self), host, logger).value();
  }
  BlockKey Key(int number) const { return KeyOf(number); }
};

// The one that reads.
struct Taker {
  std::shared_ptr<RemoteHub> hub;
  std::unique_ptr<RemotePageStore> store;

  Taker() {
    hub = RemoteHub::Create(RemotePageStore::MemoryFor(kShape), [](std::span<std::byte> to,
                                                                   const Clock& clock,
                                                                   std::function<void()> wake) {
            const NodeId self{SystemRandom() | 1};
            return MakeStoreClient({.self = self, .peers = true, .wake = std::move(wake)},
                                   OpenAs(self), to, clock);
          }).value();
    store = std::make_unique<RemotePageStore>(hub,
                                              RemoteStoreOptions{.shape = kShape, .model = kModel});
  }
  void Direct(const Giver& giver, int pages) {
    std::vector<BlockKey> keys;
    for (int i = 0; i < pages; ++i) keys.push_back(KeyOf(i));
    hub->Direct(keys, giver.served->address());
  }
  // Why it can't be read; none: it is what was put.
  std::optional<Code> Read(int number) {
    auto reader = store->OpenWithin(KeyOf(number), {.within = Seconds(5)});
    if (!reader) return reader.error().code;
    EXPECT_EQ((*reader)->header(), HeaderOf(number));
    std::vector<std::byte> read(static_cast<size_t>(kShape.PayloadBytes()));
    if (const auto layers = (*reader)->ReadLayers(0, kShape.layers, read); !layers) {
      return layers.error().code;
    }
    EXPECT_EQ(read, PayloadOf(number));
    return std::nullopt;
  }
};

TEST(PageExportTest, GivesPagesOfHostMemory) {
  Giver giver(20);
  Taker taker;
  taker.Direct(giver, 21);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(taker.Read(i), std::nullopt) << i;
  EXPECT_EQ(taker.Read(20), Code::kNotFound);
  EXPECT_EQ(taker.Read(30), Code::kUnavailable) << "nobody was named for it";
}

// Of memory for two pages, many that are wanted at once come one after the other.
TEST(PageExportTest, WaitsForRoom) {
  Giver giver(20, Bytes(2 * (kShape.PayloadBytes() + 8192)));
  Taker taker;
  taker.Direct(giver, 20);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(taker.store->WillOpen(KeyOf(i), PageUse::kWhole));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(taker.Read(i), std::nullopt) << i;
}

TEST(PageExportTest, GivesNoDamagedPage) {
  Giver giver(2);
  giver.host->BytesOf(KeyOf(0))[5000] ^= std::byte{1};
  Taker taker;
  taker.Direct(giver, 2);
  EXPECT_EQ(taker.Read(0), Code::kNotFound);
  EXPECT_EQ(taker.Read(1), std::nullopt);
  EXPECT_EQ(giver.host->stats().damaged, 1);
}

TEST(PageExportTest, EndsWhileItIsRead) {
  auto giver = std::make_unique<Giver>(40);
  Taker taker;
  taker.Direct(*giver, 40);
  EXPECT_EQ(taker.Read(0), std::nullopt);
  giver.reset();
  const Seconds begun = TheClock().Now();
  EXPECT_EQ(taker.Read(1), Code::kUnavailable);
  EXPECT_LT(TheClock().Now() - begun, Seconds(4));
}

// One client serves as many peers as it is told of.
TEST(PageExportTest, ReadsOfSeveral) {
  Giver one(4), other(4);
  other.host->Remove(KeyOf(0));
  Taker taker;
  taker.Direct(one, 1);
  EXPECT_EQ(taker.Read(0), std::nullopt);
  taker.Direct(other, 4);
  EXPECT_EQ(taker.Read(0), Code::kNotFound);
  EXPECT_EQ(taker.Read(3), std::nullopt);
}

// Who takes a worker for a node of the pool is told what it is.
TEST(PageExportTest, RefusesToBeChanged) {
  Giver giver(4);
  std::vector<std::byte> memory(1 << 16);
  const NodeId self{SystemRandom() | 1};
  const std::string address = giver.served->address();
  const StoreAddress node{"127.0.0.1", std::stoi(address.substr(address.rfind(':') + 1))};
  auto client =
      MakeStoreClient({.self = self, .nodes = {node}}, OpenAs(self), memory, TheClock()).value();
  const auto object = EncodePageObject(HeaderOf(9), PayloadOf(9));
  const uint64_t put = client->Put(KeyOf(9), object, Seconds(5));
  std::optional<RemoteDone> done;
  for (const Seconds end = TheClock().Now() + Seconds(10); !done && TheClock().Now() < end;) {
    for (RemoteDone& one : client->Poll()) {
      if (one.call == put && one.released) done = one;
    }
  }
  ASSERT_TRUE(done && done->error);
  EXPECT_NE(done->error->message.find("others only read"), std::string::npos)
      << done->error->message;
  EXPECT_FALSE(giver.host->Has(KeyOf(9)));
}

}  // namespace
}  // namespace divisi
