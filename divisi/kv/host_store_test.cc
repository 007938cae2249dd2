#include "divisi/kv/host_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "divisi/kv/page_store_fixture.h"

namespace divisi {
namespace {

constexpr PageShape kShape{.layers = 3, .layer_bytes = 100};

std::unique_ptr<HostStore> StoreOf(int64_t pages) {
  return HostStore::Create(kShape, Bytes(pages * 320)).value();
}

Result<void> Put(HostStore& store, int number) {
  return store.Put(NumberedPage(number, kShape), NumberedPayload(number, kShape));
}

Result<std::vector<std::byte>> Read(HostStore& store, int number) {
  ASSIGN_OR_RETURN(const auto reader, store.Open(NumberedPage(number, kShape).key));
  EXPECT_EQ(reader->header(), NumberedPage(number, kShape));
  std::vector<std::byte> bytes(300);
  RETURN_IF_ERROR(reader->ReadLayers(0, 1, std::span(bytes).first(100)));
  RETURN_IF_ERROR(reader->ReadLayers(1, 2, std::span(bytes).last(200)));
  return bytes;
}

TEST(HostStoreTest, GivesBackWhatWasPut) {
  const auto store = StoreOf(2);
  EXPECT_EQ(store->stats().slots, 2);
  ASSERT_TRUE(Put(*store, 1).ok());
  ASSERT_TRUE(Put(*store, 2).ok());
  EXPECT_EQ(Read(*store, 1).value(), NumberedPayload(1, kShape));
  EXPECT_EQ(Read(*store, 2).value(), NumberedPayload(2, kShape));
  EXPECT_EQ(Read(*store, 3).error().code, Code::kNotFound);
}

TEST(HostStoreTest, IsFullUntilOneIsRemoved) {
  const auto store = StoreOf(1);
  ASSERT_TRUE(Put(*store, 1).ok());
  EXPECT_TRUE(Put(*store, 1).ok());  // Is there.
  EXPECT_EQ(store->stats().puts, 1);
  EXPECT_EQ(Put(*store, 2).error().code, Code::kResourceExhausted);
  EXPECT_EQ(store->stats().refused, 1);
  store->Remove(NumberedPage(1, kShape).key);
  store->Remove(NumberedPage(1, kShape).key);
  EXPECT_TRUE(Put(*store, 2).ok());
  EXPECT_EQ(Read(*store, 1).error().code, Code::kNotFound);
}

TEST(HostStoreTest, ARemovedPageStaysForItsReaders) {
  const auto store = StoreOf(2);
  ASSERT_TRUE(Put(*store, 1).ok());
  {
    const auto reader = store->Open(NumberedPage(1, kShape).key).value();
    store->Remove(NumberedPage(1, kShape).key);
    EXPECT_EQ(store->stats().removed, 1);
    ASSERT_TRUE(Put(*store, 1).ok());  // Anew, into the other slot.
    EXPECT_EQ(Put(*store, 2).error().code, Code::kResourceExhausted);
    std::vector<std::byte> bytes(300);
    ASSERT_TRUE(reader->ReadLayers(0, 3, bytes).ok());
    EXPECT_EQ(bytes, NumberedPayload(1, kShape));
  }
  EXPECT_EQ(store->stats().removed, 0);
  EXPECT_TRUE(Put(*store, 2).ok());
}

TEST(HostStoreTest, DamageIsFoundInEachByteAndReadOnce) {
  const auto store = StoreOf(1);
  for (size_t at = 0; at < 300; ++at) {
    ASSERT_TRUE(Put(*store, 1).ok());
    store->BytesOf(NumberedPage(1, kShape).key)[at] ^= std::byte{4};
    const auto read = Read(*store, 1);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, Code::kDataLoss);
    EXPECT_THAT(read.error().message, testing::HasSubstr(Format("layer {}", at / 100)));
    EXPECT_EQ(Read(*store, 1).error().code, Code::kNotFound);
  }
  EXPECT_EQ(store->stats().damaged, 300);
}

TEST(HostStoreTest, RefusesAPageOfAnotherShape) {
  const auto store = StoreOf(1);
  const PageShape other{.layers = 4, .layer_bytes = 100};
  EXPECT_EQ(store->Put(NumberedPage(1, other), NumberedPayload(1, other)).error().code,
            Code::kInvalidArgument);
  EXPECT_EQ(HostStore::Create({}, Bytes(1000)).error().code, Code::kInvalidArgument);
}

TEST(HostStoreTest, WithoutRoomForAPageItRefusesAll) {
  const auto store = StoreOf(0);
  EXPECT_EQ(Put(*store, 1).error().code, Code::kResourceExhausted);
}

// Readers, writers and removers at once: what is read is always whole.
TEST(HostStoreTest, ThreadsNeverSeeAPartOfAPage) {
  const auto store = StoreOf(4);
  std::atomic<int64_t> read = 0;
  const auto work = [&](uint64_t seed) {
    Random random(seed);
    for (int i = 0; i < 3000; ++i) {
      const int number = static_cast<int>(random.Between(1, 8));
      const int64_t choice = random.Between(0, 3);
      if (choice == 0) store->Remove(NumberedPage(number, kShape).key);
      if (choice == 1) (void)Put(*store, number);
      if (choice < 2) continue;
      const auto bytes = Read(*store, number);
      if (!bytes) continue;
      ASSERT_EQ(*bytes, NumberedPayload(number, kShape));
      ++read;
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t seed = 1; seed <= 4; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(read, 100);
  const HostStoreStats stats = store->stats();
  EXPECT_EQ(stats.damaged, 0);
  EXPECT_EQ(stats.removed, 0);
}

}  // namespace
}  // namespace divisi
