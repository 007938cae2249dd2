// EventLog and EventStream over channels that lose, delay, repeat and reorder, and through ends and
// new lives of the source: when it is quiet again, the consumer holds what the source does.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "divisi/core/random.h"
#include "divisi/kv/event_log.h"
#include "divisi/kv/event_stream.h"
#include "divisi/kv/held_blocks.h"

namespace divisi {
namespace {

struct Faults {
  double lose = 0;    // Of a live batch, an ask, and an answer's rest.
  double repeat = 0;  // Of a live batch.
  double delay = 0;   // Mean, seconds.
};

class World {
 public:
  World(uint64_t seed, bool replay) : random_(seed), replay_(replay) {
    faults_ = {random_.Uniform() * 0.4, random_.Uniform() * 0.4, random_.Uniform() * 0.1};
    EventStreamOptions options;
    options.replay = replay;
    options.pending_batches = static_cast<size_t>(random_.Between(2, 40));
    options.attempts = static_cast<int>(random_.Between(1, 5));
    stream_ = EventStream(options);
    NewLog();
  }

  // Things happen, all goes wrong.
  void Trouble(double seconds) {
    const double end = now_ + seconds;
    while (now_ < end) {
      At(random_.Exponential(0.02), [this] { Happen(); });
      Run(now_ + 0.02);
    }
  }
  // Nothing goes wrong any more; events end.
  void Quiet() {
    faults_ = {0, 0, 0.001};
    Run(now_ + 5);
    Publish();
    Run(now_ + 400);
  }

  bool HoldsTheSame() const {
    HeldBlocks truth;
    for (const auto& [number, tier] : truth_) truth.Apply(Stored(number, tier));
    return truth == held_;
  }
  bool ClaimsOnlyWhatIs() const {
    for (int number = 0; number < kBlocks; ++number) {
      for (const EventTier tier : kTiers) {
        if (held_.Holds(Hash(number), tier) && !truth_.contains({number, tier})) return false;
      }
    }
    return true;
  }
  EventStreamStats stats() const { return stream_.stats(); }
  uint64_t snapshots() const { return snapshots_ + log_->stats().snapshots; }

 private:
  static constexpr int kBlocks = 60;
  static constexpr EventTier kTiers[] = {EventTier::kDevice, EventTier::kHost, EventTier::kDisk};

  static EventHash Hash(int number) { return EventHash(static_cast<uint64_t>(number)); }
  static StoredEvent Stored(int number, EventTier tier) {
    StoredEvent event;
    event.hashes = {Hash(number)};
    if (number > 0) event.parent = Hash(number - 1);
    event.block_size = 1;
    event.tokens = {number};
    event.medium = MediumOfTier(tier);
    return event;
  }

  void NewLog() {
    if (log_) snapshots_ += log_->stats().snapshots;
    log_.emplace(
        EventLog::Options{.shape = random_.Chance(0.5) ? EventShape::kMap : EventShape::kPositional,
                          .ring_batches = static_cast<size_t>(random_.Between(1, 12)),
                          .batch_blocks = static_cast<size_t>(random_.Between(1, 8)),
                          .pending_blocks = static_cast<size_t>(random_.Between(1, 30))});
    truth_.clear();
  }

  void At(double after, std::function<void()> what) {
    queue_.emplace(now_ + after, std::move(what));
  }
  double Delay() { return random_.Exponential(faults_.delay + 1e-6); }

  // One thing, and at most of times its publication.
  void Happen() {
    const int number = static_cast<int>(random_.Between(0, kBlocks - 1));
    const EventTier tier = kTiers[random_.Between(0, 2)];
    const double kind = random_.Uniform();
    if (kind < 0.6) {
      log_->Add(Stored(number, tier));
      truth_.insert({number, tier});
    } else if (kind < 0.97) {
      log_->Add(RemovedEvent{{Hash(number)}, MediumOfTier(tier), {}, {}});
      truth_.erase({number, tier});
    } else if (kind < 0.98) {
      log_->Add(ClearedEvent{});
      truth_.clear();
    } else if (kind < 0.99) {
      Reconnect();
    } else {
      NewLife();
    }
    if (random_.Chance(0.7)) Publish();
  }

  void Publish() {
    clock_ += 0.001;
    for (const NumberedBatch& batch : log_->Flush(clock_)) {
      if (random_.Chance(faults_.lose)) continue;
      const int copies = random_.Chance(faults_.repeat) ? 2 : 1;
      for (int i = 0; i < copies; ++i) {
        At(Delay(), [this, batch, connection = connection_] {
          if (connection == connection_)
            stream_.Live(batch.sequence, *batch.payload, Seconds{now_});
        });
      }
    }
  }

  void Reconnect() {
    ++connection_;  // What was on its way is lost.
    stream_.Disconnected(Seconds{now_});
    stream_.Connected(Seconds{now_});
  }
  void NewLife() {
    NewLog();
    clock_ += 1;
    ++life_;
    ++connection_;  // What was on its way came first, or is lost.
    // With replay, also one that nobody noticed.
    if (!replay_ || random_.Chance(0.7)) Reconnect();
  }

  void Answer(ReplayAsk ask) {
    if (random_.Chance(faults_.lose)) return;
    Publish();
    clock_ += 0.001;
    double at = Delay();
    const auto batches = log_->Since(ask.from, clock_);
    for (size_t i = 0; i < batches.size(); ++i) {
      const NumberedBatch& batch = batches[i];
      if (random_.Chance(faults_.lose / 4)) return;
      // vLLM drops what a slow asker's queue has no room for.
      const bool inside = i > 0 && i + 1 < batches.size();
      if (inside && random_.Chance(faults_.lose / 20)) continue;
      At(at, [this, ask, batch, life = life_] {
        if (life == life_) stream_.Replayed(ask.id, batch.sequence, *batch.payload, Seconds{now_});
      });
      at += Delay() / 10;
    }
    At(at + 1e-9, [this, ask, life = life_] {
      if (life == life_) stream_.ReplayEnded(ask.id, Seconds{now_});
    });
  }

  void Run(double until) {
    while (true) {
      stream_.Tick(Seconds{now_});
      if (const auto ask = stream_.TakeAsk()) At(Delay(), [this, ask] { Answer(*ask); });
      for (EventUpdate& update : stream_.TakeUpdates()) {
        if (update.forget) held_.Clear();
        for (const KvEvent& event : update.events) held_.Apply(event);
      }
      const double next =
          std::min(queue_.empty() ? until : queue_.begin()->first, stream_.NextTick().value);
      if (next > until || (queue_.empty() && next >= until)) break;
      now_ = std::max(now_, next);
      if (queue_.empty() || queue_.begin()->first > now_) continue;
      const auto what = std::move(queue_.begin()->second);
      queue_.erase(queue_.begin());
      what();
    }
    now_ = std::max(now_, until);
  }

  Random random_;
  bool replay_;
  Faults faults_;
  double now_ = 1;
  double clock_ = 1e9;
  int connection_ = 0;
  int life_ = 0;
  uint64_t snapshots_ = 0;
  std::multimap<double, std::function<void()>> queue_;
  std::optional<EventLog> log_;
  std::set<std::pair<int, EventTier>> truth_;
  EventStream stream_{{}};
  HeldBlocks held_;
};

TEST(EventStreamSimTest, AfterQuietTheConsumerHoldsWhatTheSourceDoes) {
  EventStreamStats sum;
  uint64_t snapshots = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    World world(seed, true);
    for (int phase = 0; phase < 3; ++phase) {
      world.Trouble(8);
      world.Quiet();
      ASSERT_TRUE(world.HoldsTheSame()) << "seed " << seed << ", phase " << phase;
      ASSERT_TRUE(world.stats().following);
    }
    const EventStreamStats stats = world.stats();
    sum.duplicates += stats.duplicates;
    sum.gaps += stats.gaps;
    sum.unanswered += stats.unanswered;
    sum.restarts += stats.restarts;
    sum.losses += stats.losses;
    snapshots += world.snapshots();
  }
  // It was worth the name.
  EXPECT_GT(sum.duplicates, 1000u);
  EXPECT_GT(sum.gaps, 1000u);
  EXPECT_GT(sum.unanswered, 100u);
  EXPECT_GT(sum.restarts, 1000u);
  EXPECT_GT(sum.losses, 100u);
  EXPECT_GT(snapshots, 1000u);
}

TEST(EventStreamSimTest, WithoutReplayTheConsumerClaimsNothingThatIsNot) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    World world(seed, false);
    world.Trouble(8);
    world.Quiet();
    // The last of what was lost shows with the next batches.
    world.Trouble(1);
    world.Quiet();
    ASSERT_TRUE(world.ClaimsOnlyWhatIs()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace divisi
