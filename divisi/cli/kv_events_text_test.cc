#include "divisi/cli/kv_events_text.h"

#include <gtest/gtest.h>

namespace divisi {
namespace {

EventUpdate Update() {
  StoredEvent stored;
  stored.hashes = {EventHash(uint64_t{7}), EventHash(uint64_t{8})};
  stored.block_size = 1;
  stored.tokens = {1, 2};
  stored.spec_kind = "mamba";
  stored.group = 1;
  BlockKey key;
  key.bytes[31] = 255;
  return {.forget = true,
          .events = {stored, RemovedEvent{{EventHash(key)}, "TAPE", {}, {}}, ClearedEvent{},
                     OtherEvent{"Moved", "x"}},
          .sequence = 12,
          .time_seconds = 1.5,
          .data_parallel_rank = 0};
}

TEST(KvEventsTextTest, OneLineAnEvent) {
  EXPECT_EQ(
      KvEventsText(Update()),
      "         forget   everything: batches are missing for good\n"
      "      12 stored   2 blocks on GPU, 1 tokens each, group 1 (mamba: no prefix): 7 at the "
      "start\n"
      "      12 removed  1 block on TAPE (unknown): ..00000000000000ff\n"
      "      12 cleared  everything\n"
      "      12 unknown  'Moved', 1 bytes; --format json shows it\n");
}

TEST(KvEventsTextTest, JsonHasAllFields) {
  const Json json = KvEventsJson(Update());
  EXPECT_TRUE(json.Find("forget")->as_bool());
  EXPECT_EQ(json.Find("sequence")->as_int(), 12);
  EXPECT_EQ(json.Find("time_seconds")->as_double(), 1.5);
  EXPECT_EQ(json.Find("data_parallel_rank")->as_int(), 0);
  EXPECT_EQ(json.Find("events")->as_array().size(), 4u);
}

TEST(KvEventsTextTest, NewsAreChangesOnly) {
  EventStreamStats now;
  EXPECT_EQ(StreamNews({}, now), "");
  now.connected = now.following = true;
  now.next = 3;
  EXPECT_EQ(StreamNews({}, now), "connected\nfollowing: nothing is missing before batch 3\n");
  EXPECT_EQ(StreamNews(now, now), "");
  HeldBlocks held;
  held.Apply(KvEvent(StoredEvent{.hashes = {EventHash(uint64_t{1})}}));
  EXPECT_EQ(HeldText(now, held), "0 batches; 1 block held: 1 device");
}

}  // namespace
}  // namespace divisi
