#include "divisi/kv/event_stream.h"

#include <gtest/gtest.h>

#include <string>

namespace divisi {
namespace {

constexpr Seconds kSoon{0.001};

// The events of batch `sequence` of a life: one block of that number.
std::string Payload(uint64_t sequence, double life = 0, bool clears = false) {
  StoredEvent stored;
  stored.hashes = {EventHash(sequence)};
  EventBatch batch{life * 1000 + static_cast<double>(sequence), {}, {}, {}};
  if (clears) batch.events.push_back(ClearedEvent{});
  batch.events.push_back(stored);
  return EncodeEventBatch(batch, EventShape::kMap);
}

class EventStreamTest : public testing::Test {
 protected:
  void Live(uint64_t sequence, double life = 0) {
    stream_.Live(sequence, Payload(sequence, life), now_);
  }
  // "3,4,forget,9": what came out since.
  std::string Out() {
    std::string text;
    const auto add = [&](const std::string& word) { text += (text.empty() ? "" : ",") + word; };
    for (const EventUpdate& update : stream_.TakeUpdates()) {
      if (update.forget) add("forget");
      for (const KvEvent& event : update.events) {
        const auto* stored = std::get_if<StoredEvent>(&event);
        add(stored != nullptr ? stored->hashes[0].Text() : "clear");
      }
    }
    return text;
  }
  // The number that is asked for; none: -1.
  int64_t Asked() {
    const auto ask = stream_.TakeAsk();
    if (!ask) return -1;
    id_ = ask->id;
    return static_cast<int64_t>(ask->from);
  }
  int64_t AskedAfter(Seconds pause) {
    now_ += pause;
    stream_.Tick(now_);
    return Asked();
  }
  void Answer(const std::vector<uint64_t>& sequences, double life = 0) {
    for (const uint64_t sequence : sequences) {
      stream_.Replayed(id_, sequence, Payload(sequence, life), now_);
    }
    stream_.ReplayEnded(id_, now_);
  }
  // As one that has taken batches 0 to 2.
  void Begin() {
    EXPECT_EQ(AskedAfter(kSoon), 0);
    Answer({0, 1, 2});
    EXPECT_EQ(Out(), "0,1,2");
    EXPECT_TRUE(stream_.stats().following);
  }

  EventStreamOptions options_;
  EventStream stream_{options_};
  Seconds now_{1};
  uint64_t id_ = 0;
};

TEST_F(EventStreamTest, BeginsWithAReplayAndGoesOnLive) {
  EXPECT_EQ(AskedAfter(kSoon), 0);
  Live(2);
  Live(3);
  EXPECT_EQ(Out(), "");
  Answer({0, 1, 2});
  EXPECT_EQ(Out(), "0,1,2,3");
  Live(4);
  EXPECT_EQ(Out(), "4");
  EXPECT_EQ(stream_.stats().next, 5u);
}

TEST_F(EventStreamTest, BeginsInTheMiddleWhereTheRingDoes) {
  EXPECT_EQ(AskedAfter(kSoon), 0);
  Answer({7, 8});
  EXPECT_EQ(Out(), "7,8");
  EXPECT_EQ(stream_.stats().losses, 0u);
}

TEST_F(EventStreamTest, RepeatedAndLateBatchesArePassedOver) {
  Begin();
  Live(3);
  Live(3);
  Live(1);
  EXPECT_EQ(Out(), "3");
  EXPECT_EQ(stream_.stats().duplicates, 2u);
}

TEST_F(EventStreamTest, AShortReorderingAsksNothing) {
  Begin();
  Live(4);
  EXPECT_EQ(AskedAfter(kSoon), -1);
  Live(3);
  EXPECT_EQ(Out(), "3,4");
  EXPECT_EQ(AskedAfter(Seconds{1}), -1);
  EXPECT_EQ(stream_.stats().gaps, 1u);
}

TEST_F(EventStreamTest, AGapIsAskedForWithTheLastBatchThatWasTaken) {
  Begin();
  Live(5);
  EXPECT_EQ(AskedAfter(options_.reorder_wait), 2);
  Answer({2, 3, 4, 5});
  EXPECT_EQ(Out(), "3,4,5");
  Live(6);
  EXPECT_EQ(Out(), "6");
}

TEST_F(EventStreamTest, WhatTheRingLostIsForgotten) {
  Begin();
  Live(9);
  EXPECT_EQ(AskedAfter(options_.reorder_wait), 2);
  Answer({7, 8, 9});
  EXPECT_EQ(Out(), "forget,7,8,9");
  EXPECT_EQ(stream_.stats().losses, 1u);
}

TEST_F(EventStreamTest, ASnapshotForgetsNothingButWhatItClears) {
  Begin();
  Live(9);
  EXPECT_EQ(AskedAfter(options_.reorder_wait), 2);
  stream_.Replayed(id_, 8, Payload(8, 1, true), now_);
  Live(10);
  stream_.Replayed(id_, 9, Payload(9, 1), now_);
  stream_.ReplayEnded(id_, now_);
  // Number 9 was kept from the live channel, and is part of the snapshot.
  EXPECT_EQ(Out(), "clear,8,9");
  EXPECT_EQ(stream_.stats().losses, 0u);
  EXPECT_EQ(stream_.stats().next, 10u);  // 10 is older than the snapshot: the replay tells.
}

TEST_F(EventStreamTest, HalfASnapshotIsAskedForAnew) {
  Begin();
  Live(9);
  EXPECT_EQ(AskedAfter(options_.reorder_wait), 2);
  stream_.Replayed(id_, 8, Payload(8, 1, true), now_);
  EXPECT_EQ(AskedAfter(options_.answer_wait), -1);
  EXPECT_EQ(Out(), "clear,8,forget");
  EXPECT_EQ(AskedAfter(options_.first_backoff), 2);
  stream_.Replayed(id_, 8, Payload(8, 1, true), now_);
  stream_.Replayed(id_, 9, Payload(9, 1), now_);
  stream_.ReplayEnded(id_, now_);
  EXPECT_EQ(Out(), "clear,8,9");
}

TEST_F(EventStreamTest, WithoutAnswersItGoesOnWithWhatCame) {
  Begin();
  Live(5);
  Live(6);
  EXPECT_EQ(AskedAfter(options_.reorder_wait), 2);
  for (int i = 1; i < options_.attempts; ++i) {
    EXPECT_EQ(AskedAfter(options_.answer_wait), -1);
    EXPECT_EQ(AskedAfter(options_.most_backoff), 2) << i;
  }
  EXPECT_EQ(AskedAfter(options_.answer_wait), -1);
  EXPECT_EQ(Out(), "forget,5,6");
  EXPECT_EQ(stream_.stats().unanswered, 5u);
  EXPECT_TRUE(stream_.stats().following);
}

TEST_F(EventStreamTest, WhoAnswersAgainIsAskedForAllThatWasGivenUp) {
  options_.attempts = 1;
  stream_ = EventStream(options_);
  Begin();
  Live(5);
  EXPECT_EQ(AskedAfter(options_.reorder_wait), 2);
  EXPECT_EQ(AskedAfter(options_.answer_wait), -1);
  EXPECT_EQ(Out(), "forget,5");
  EXPECT_EQ(AskedAfter(options_.check_every), 5);
  Answer({5});
  EXPECT_EQ(AskedAfter(kSoon), 0);
  Answer({1, 2, 3, 4, 5});
  EXPECT_EQ(Out(), "forget,1,2,3,4,5");
  EXPECT_EQ(AskedAfter(options_.check_every), 5);
  Answer({5});
  EXPECT_EQ(Out(), "");
  EXPECT_EQ(AskedAfter(kSoon), -1);
}

TEST_F(EventStreamTest, AnswersToEarlierAsksArePassedOver) {
  Begin();
  Live(5);
  EXPECT_EQ(AskedAfter(options_.reorder_wait), 2);
  const uint64_t earlier = id_;
  AskedAfter(options_.answer_wait);
  EXPECT_EQ(AskedAfter(options_.most_backoff), 2);
  stream_.ReplayEnded(earlier, now_);
  stream_.Replayed(earlier, 3, Payload(3), now_);
  EXPECT_EQ(Out(), "");
  Answer({2, 3, 4});
  EXPECT_EQ(Out(), "3,4,5");
}

TEST_F(EventStreamTest, ANewLifeIsSeenByItsFirstLiveBatch) {
  Begin();
  Live(0, 1);
  EXPECT_EQ(Out(), "forget");
  EXPECT_EQ(AskedAfter(kSoon), 0);
  Live(1, 1);
  Answer({0}, 1);
  EXPECT_EQ(Out(), "0,1");
  EXPECT_EQ(stream_.stats().restarts, 1u);
}

TEST_F(EventStreamTest, ANewLifeWhoseFirstBatchesWereMissedIsReplayed) {
  Begin();
  Live(1, 1);
  EXPECT_EQ(Out(), "forget");
  EXPECT_EQ(AskedAfter(kSoon), 0);
  Answer({0, 1}, 1);
  EXPECT_EQ(Out(), "0,1");
}

TEST_F(EventStreamTest, AConnectionMadeAnewVerifiesTheLife) {
  Begin();
  stream_.Disconnected(now_);
  stream_.Connected(now_);
  EXPECT_EQ(AskedAfter(kSoon), 2);
  Live(3, 1);  // Fits by chance: the new life's fourth batch.
  EXPECT_EQ(Out(), "");
  Answer({2, 3}, 1);
  EXPECT_EQ(Out(), "forget");
  EXPECT_EQ(AskedAfter(kSoon), 0);
  Answer({0, 1, 2, 3}, 1);
  EXPECT_EQ(Out(), "0,1,2,3");

  stream_.Connected(now_);
  EXPECT_EQ(AskedAfter(kSoon), 3);
  Answer({3, 4}, 1);
  EXPECT_EQ(Out(), "4");
}

TEST_F(EventStreamTest, WhatWasKeptAsideEndsWithItsConnection) {
  Begin();
  Live(0, 1);
  EXPECT_EQ(Out(), "forget");
  stream_.Connected(now_);  // To yet another life, which said nothing so far.
  EXPECT_EQ(AskedAfter(kSoon), 0);
  Answer({});
  EXPECT_EQ(Out(), "");
  Live(0, 2);
  EXPECT_EQ(Out(), "0");
}

TEST_F(EventStreamTest, ANewLifeThatToldLessIsFoundByACheck) {
  Begin();
  EXPECT_EQ(AskedAfter(options_.check_every), 2);
  Answer({});
  EXPECT_EQ(Out(), "forget");
  EXPECT_EQ(AskedAfter(kSoon), 0);
  Answer({});
  EXPECT_TRUE(stream_.stats().following);
  Live(0, 1);
  EXPECT_EQ(Out(), "0");
}

TEST_F(EventStreamTest, ACheckFindsTheLastBatchThatWasMissed) {
  Begin();
  EXPECT_EQ(AskedAfter(options_.check_every), 2);
  Live(4);
  Answer({2, 3, 4});
  EXPECT_EQ(Out(), "3,4");
}

TEST_F(EventStreamTest, ClearingHealsAGap) {
  Begin();
  Live(6);
  stream_.Live(5, Payload(5, 0, true), now_);
  EXPECT_EQ(Out(), "clear,5,6");
  EXPECT_EQ(AskedAfter(Seconds{1}), -1);
  Live(4);
  EXPECT_EQ(Out(), "");
  EXPECT_EQ(stream_.stats().restarts, 0u);
}

TEST_F(EventStreamTest, WhatIsNoBatchIsALoss) {
  Begin();
  stream_.Live(3, "no batch", now_);
  Live(4);
  EXPECT_EQ(Out(), "forget,4");
  EXPECT_EQ(stream_.stats().undecodable, 1u);
}

TEST_F(EventStreamTest, ASourceWithoutReplayIsForgottenAtAGap) {
  options_.replay = false;
  stream_ = EventStream(options_);
  EXPECT_EQ(AskedAfter(kSoon), -1);
  Live(7);
  Live(9);
  EXPECT_EQ(Out(), "7");
  EXPECT_EQ(AskedAfter(options_.reorder_wait), -1);
  EXPECT_EQ(Out(), "forget,9");
  stream_.Connected(now_);
  EXPECT_EQ(Out(), "forget");
  Live(0, -1);  // Another life, by a clock that went back.
  EXPECT_EQ(Out(), "0");
}

TEST_F(EventStreamTest, WhatIsKeptAsideIsBounded) {
  options_.pending_batches = 3;
  stream_ = EventStream(options_);
  Begin();
  for (uint64_t sequence = 4; sequence < 8; ++sequence) Live(sequence);
  EXPECT_EQ(Out(), "forget,4,5,6,7");
  options_.pending_batches = 100;
  options_.pending_bytes = 2 * Payload(4).size();
  stream_ = EventStream(options_);
  Begin();
  for (uint64_t sequence = 4; sequence < 7; ++sequence) Live(sequence);
  EXPECT_EQ(Out(), "forget,4,5,6");
}

}  // namespace
}  // namespace divisi
