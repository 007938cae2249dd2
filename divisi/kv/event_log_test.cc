#include "divisi/kv/event_log.h"

#include <gtest/gtest.h>

#include "divisi/kv/held_blocks.h"

namespace divisi {
namespace {

BlockKey Key(uint8_t number) {
  BlockKey key;
  key.bytes[0] = number;
  return key;
}

// Page `number` of a chain of pages 1, 2, 3...
StoredEvent Page(uint8_t number, EventTier tier = EventTier::kDevice) {
  const std::vector<TokenId> tokens(kBlockTokens, number);
  const BlockKey parent = Key(static_cast<uint8_t>(number - 1));
  return PageStored(Key(number), number == 1 ? nullptr : &parent, tokens, tier);
}

std::vector<KvEvent> EventsOf(const std::vector<NumberedBatch>& batches) {
  std::vector<KvEvent> events;
  for (const NumberedBatch& batch : batches) {
    const auto decoded = DecodeEventBatch(*batch.payload);
    EXPECT_TRUE(decoded.ok());
    events.insert(events.end(), decoded->events.begin(), decoded->events.end());
  }
  return events;
}

TEST(EventLogTest, PagesThatFollowEachOtherAreOneEvent) {
  EventLog log({});
  for (const uint8_t page : {1, 2, 3, 5}) log.Add(Page(page));
  log.Add(Page(6, EventTier::kHost));
  for (const uint8_t page : {1, 2}) log.Add(PageRemoved(Key(page), EventTier::kDevice));
  const auto batches = log.Flush(1.5);
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_EQ(batches[0].sequence, 0u);
  const auto events = EventsOf(batches);
  ASSERT_EQ(events.size(), 4u);
  const auto& chain = std::get<StoredEvent>(events[0]);
  EXPECT_EQ(chain.hashes, (std::vector{EventHash(Key(1)), EventHash(Key(2)), EventHash(Key(3))}));
  EXPECT_EQ(chain.parent, std::nullopt);
  EXPECT_EQ(chain.TokensOf(2)[0], 3);
  EXPECT_EQ(chain.medium, "GPU");
  EXPECT_EQ(std::get<StoredEvent>(events[1]).parent, EventHash(Key(4)));
  EXPECT_EQ(std::get<StoredEvent>(events[2]).medium, "CPU");
  EXPECT_EQ(std::get<RemovedEvent>(events[3]).hashes.size(), 2u);
  EXPECT_TRUE(log.Flush(2).empty());
}

TEST(EventLogTest, TellsWhatChangesAndNothingElse) {
  EventLog log({});
  log.Add(Page(1));
  log.Add(Page(1));
  log.Add(PageRemoved(Key(2), EventTier::kDevice));
  log.Add(PageRemoved(Key(1), EventTier::kDisk));
  EXPECT_EQ(EventsOf(log.Flush(1)).size(), 1u);
  log.Add(Page(1));
  EXPECT_FALSE(log.pending());
}

TEST(EventLogTest, ExtrasAndAdaptersOfForeignBlocksSurvive) {
  EventLog log({});
  StoredEvent event = Page(1);
  event.hashes.push_back(EventHash(Key(2)));
  event.tokens.resize(2 * kBlockTokens);
  event.lora_name = "adapter";
  event.group = 3;
  event.extra_keys = std::vector<BlockExtras>(2);
  (*event.extra_keys)[1] = {{ExtraKey::Kind::kText, "salt", 0}};
  log.Add(event);
  EXPECT_EQ(EventsOf(log.Flush(1)), std::vector<KvEvent>{event});
}

TEST(EventLogTest, TheRingAnswersFromAnyOfItsNumbers) {
  EventLog log({.ring_batches = 3});
  for (uint8_t page = 1; page <= 5; ++page) {
    log.Add(Page(page));
    log.Flush(page);
  }
  const auto all = log.Since(2, 6);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].sequence, 2u);
  EXPECT_EQ(log.Since(4, 6).size(), 1u);
  EXPECT_TRUE(log.Since(5, 6).empty());
  EXPECT_TRUE(log.Since(~uint64_t{0}, 6).empty());
  EXPECT_EQ(log.stats().snapshots, 0u);
}

TEST(EventLogTest, OlderThanTheRingGetsASnapshotThatEndsWithTheLastNumber) {
  EventLog log({.ring_batches = 2, .batch_blocks = 3});
  for (uint8_t page = 1; page <= 9; ++page) {
    log.Add(Page(page));
    if (page % 3 == 0) log.Add(PageRemoved(Key(page), EventTier::kDevice));
    log.Flush(page);
  }
  const auto batches = log.Since(1, 10);
  ASSERT_EQ(batches.size(), 3u);  // Clearing and six pages, three to a batch.
  for (size_t i = 0; i < batches.size(); ++i) EXPECT_EQ(batches[i].sequence, 6 + i);
  const auto events = EventsOf(batches);
  EXPECT_TRUE(std::holds_alternative<ClearedEvent>(events[0]));
  HeldBlocks held;
  for (const KvEvent& event : events) held.Apply(event);
  EXPECT_EQ(held.size(), 6u);
  EXPECT_EQ(log.stats().held, 6u);
  // With few numbers missed, batches are larger rather than more.
  EXPECT_LE(log.Since(6, 10).size(), 3u);
}

TEST(EventLogTest, TheRingIsBoundedInBytesToo) {
  EventLog log({.ring_bytes = 1});
  for (uint8_t page = 1; page <= 9; ++page) {
    log.Add(Page(page));
    log.Flush(page);
  }
  EXPECT_EQ(log.stats().ring, 1u);
  EXPECT_EQ(EventsOf(log.Since(0, 10)).size(), 2u);  // Clearing, and one chain.
}

TEST(EventLogTest, TooMuchAtOnceTellsEverythingAnew) {
  EventLog log({.batch_blocks = 2, .pending_blocks = 4});
  for (uint8_t page = 1; page <= 9; ++page) log.Add(Page(page));
  log.Add(PageRemoved(Key(1), EventTier::kDevice));
  HeldBlocks held;
  const auto batches = log.Flush(1);
  EXPECT_EQ(batches.size(), 5u);
  const auto events = EventsOf(batches);
  EXPECT_TRUE(std::holds_alternative<ClearedEvent>(events[0]));
  for (const KvEvent& event : events) held.Apply(event);
  EXPECT_EQ(held.size(), 8u);
  EXPECT_EQ(log.stats().overflows, 1u);
}

TEST(EventLogTest, ClearingOutdatesWhatIsPending) {
  EventLog log({});
  log.Add(Page(1));
  log.Add(ClearedEvent{});
  log.Add(Page(2));
  const auto events = EventsOf(log.Flush(1));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<ClearedEvent>(events[0]));
  EXPECT_EQ(log.stats().held, 1u);
}

}  // namespace
}  // namespace divisi
