// The events of one source, made whole: batches come from a channel that may lose, repeat and
// reorder them, from a source that may start anew; what goes out is each batch once and in order,
// or "forget everything" where that cannot be had.
//
//   live batches --> in order? --yes--> updates
//                       | no: kept aside
//                       v
//                  wait a little --> ask for what is missing --> replayed batches --> updates
//                       ^                     | no answer, or not enough
//                       '---- wait longer ----'--- too often ---> forget, go on with what came
//
// A source forgotten holds nothing until it tells more: that costs hits, never a wrong claim. When
// it answers again, it is asked for everything.
//
// Lives. A source that starts anew numbers from 0. Two signs tell its live batches from late ones
// of the life before: a number that was seen with other content, and a lower number with a later
// time. And every ask begins with the last batch that was taken, which the answer must have in its
// place. So after a connection is made anew, live batches wait for an answer; a source that gives
// none (no replay) is forgotten then.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "divisi/core/units.h"
#include "divisi/kv/kv_event.h"

namespace divisi {

// In the order of their members: whether to forget all that the source held, then what happened.
struct EventUpdate {
  bool forget = false;
  std::vector<KvEvent> events;
  // Of the batch that they came in, by the sender's clock; 0 where there are none.
  uint64_t sequence = 0;
  double time_seconds = 0;
  std::optional<int64_t> data_parallel_rank;
};

// A replay to ask for, from batch `from` on. Each voids those before it: their answers must not be
// delivered (a fresh socket for each does that), and are passed over where they are.
struct ReplayAsk {
  uint64_t id = 0;
  uint64_t from = 0;
};

struct EventStreamOptions {
  bool replay = true;  // The source answers asks.
  Seconds reorder_wait{0.02};
  Seconds answer_wait{2};    // For the next batch of an answer.
  Seconds replay_wait{120};  // For the whole answer: 10,000 batches.
  Seconds first_backoff{0.5};
  Seconds most_backoff{30};  // Doubled up to here.
  int attempts = 5;          // Then what is missing is given up.
  Seconds check_every{30};   // Asks whether the last batch was the last, so that none is missed.
  // Kept aside while some are missing.
  size_t pending_batches = 10'000;
  size_t pending_bytes = size_t{64} << 20;
};

struct EventStreamStats {
  uint64_t batches = 0;       // Taken, each once.
  uint64_t duplicates = 0;    // Passed over: repeated, or late.
  uint64_t gaps = 0;          // Times that a number was missing.
  uint64_t asks = 0;          // Replays asked for, checks included.
  uint64_t unanswered = 0;    // Asks that ended without their end marker.
  uint64_t restarts = 0;      // Other lives of the source.
  uint64_t losses = 0;        // Batches missing for good, so everything was forgotten.
  uint64_t undecodable = 0;   // Batches that were none; each is a loss too.
  uint64_t other_events = 0;  // Of unknown types or wrong fields.
  uint64_t next = 0;          // The number that comes next.
  bool following = false;     // Nothing is missing as far as is known.
  bool connected = false;
};

// Pure: no clock, threads or sockets; one owner. Time never runs backwards between calls.
class EventStream {
 public:
  explicit EventStream(EventStreamOptions options) : options_(options) {}

  // A connection to the source's live channel was made, or lost.
  void Connected(Seconds now);
  void Disconnected(Seconds now);
  void Live(uint64_t sequence, std::string_view payload, Seconds now);
  // Of the answer to ask `id`.
  void Replayed(uint64_t id, uint64_t sequence, std::string_view payload, Seconds now);
  void ReplayEnded(uint64_t id, Seconds now);

  // When Tick has something to do at the latest; call it then, and first of all.
  Seconds NextTick() const { return at_; }
  void Tick(Seconds now);

  std::vector<EventUpdate> TakeUpdates();
  std::optional<ReplayAsk> TakeAsk();
  EventStreamStats stats() const;

 private:
  enum class Phase { kFollowing, kWaiting, kAsking };
  struct Batch {
    std::optional<EventBatch> batch;  // None: no batch.
    uint64_t digest = 0;
    size_t bytes = 0;
  };
  struct Asking {
    ReplayAsk ask;
    std::optional<uint64_t> digest;  // Of batch `from`, which was taken; none: not known.
    bool verifies = false;           // Batch `from` was taken.
    bool answered = false;           // Something came.
    bool snapshot = false;           // What comes is not what was published under those numbers.
    Seconds end;                     // Of the whole answer.
  };

  static Batch Decode(std::string_view payload);
  static bool Clears(const Batch& batch);
  bool IsRestart(uint64_t sequence, const Batch& batch) const;
  std::optional<uint64_t> DigestOf(uint64_t sequence) const;
  bool IsOlder(const Batch& batch) const;
  bool MustWait() const;
  void LiveBehind(uint64_t sequence, Batch batch, Seconds now);
  void LiveAhead(uint64_t sequence, Batch batch, Seconds now);
  bool AnswersOtherLife(uint64_t sequence, const Batch& batch) const;
  void Restart(Seconds now);
  void StartOver(Seconds now);
  void Forget();
  void Take(uint64_t sequence, Batch batch, bool remember);
  void Keep(uint64_t sequence, Batch batch, Seconds now);
  void DropPending(uint64_t below);
  void Drain();
  void Settle(Seconds now);
  void GiveUp(Seconds now);
  void Ask(Seconds now);
  void AbandonAnswer();
  void AskFailed(Seconds now);
  void WaitToAsk(Seconds at);
  void Follow(Seconds now);

  EventStreamOptions options_;
  Phase phase_ = Phase::kWaiting;
  Seconds at_{0};  // Of waiting: to ask. Of asking: to give the answer up. Of following: to check.
  int attempts_ = 0;
  std::optional<Asking> asking_;
  std::optional<ReplayAsk> ask_;  // Not taken yet.
  uint64_t next_ask_ = 1;

  std::optional<uint64_t> next_;  // The number that comes next; none until something did.
  double last_time_ = 0;          // The sender's, of the last batch taken.
  bool holds_ = false;            // Something was told since the last "forget".
  // Batches were given up: what is held is less than what the source holds. When an ask is answered
  // again, all is asked for anew; where that fails too, only after 1, 2, 4, 8, 8... more answers.
  bool incomplete_ = false;
  int refreshes_ = 0;
  int answers_to_wait_ = 0;
  bool verify_due_ = false;  // Connected anew: the next answer tells whether it is the same life.
  // Numbers and digests of the last batches taken.
  std::deque<std::pair<uint64_t, uint64_t>> recent_;
  std::map<uint64_t, Batch> pending_;
  size_t pending_bytes_ = 0;
  bool forget_ = false;  // Goes out with the next update.
  std::vector<EventUpdate> updates_;
  EventStreamStats stats_;
};

}  // namespace divisi
