// One worker's part of the cluster: the scheduler, and the state of every request that a gateway
// sent it as replica, as prefill (P) or as decode (D). A pure state machine like the scheduler:
// messages and finished steps go in, messages and page writes come out; no clock, no I/O.
//
// A request at D:   reserved --Handover--> running --> finished --Abort, lease--> gone
//                      |  Abort, lease            (its tokens are kept until the gateway has them)
//                      v
//                   stopping --Stopped, Handover, P fenced--> gone (its pages are free)
// A request at P:   computing --> writing --> handed over --Taken--> gone
//                      any --Abort, lease, write failed, D gone--> gone, and Stopped to D
//                                                 once no write is under way
// Replicas' requests are those of D that begin as running.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "divisi/control/handoff.h"
#include "divisi/control/worker_counters.h"
#include "divisi/control/worker_rates.h"
#include "divisi/engine/prefix_loader.h"
#include "divisi/engine/scheduler.h"

namespace divisi {

// A page of this worker to be written to one of another's, whole, one-sided. WriteDone answers.
struct PageWrite {
  uint64_t id = 0;
  NodeId to;
  BlockId from_page = 0;
  BlockId to_page = 0;
};

// A prompt that was handed over, as P saw it.
struct HandoverTimes {
  TransferId id;
  int64_t pages = 0;  // That P wrote.
  Seconds computing;  // From Prefill to the end of the prompt's last step,
  Seconds writing;    // from there until its last page was at D: what computing did not hide,
  Seconds taking;     // from there until D had taken it.
};

// Its load now, what it did, and how fast.
struct WorkerStats {
  SchedulerStats scheduler;
  int64_t incoming = 0;  // Requests of D and replicas that are not over.
  int64_t stopping = 0;  // Of them, those whose reserved pages a write may still reach
  int64_t outgoing = 0;  // Of P.
  // Of those: prompts not through, pages on their way, handed over and not taken, given up while
  // writes are under way.
  int64_t computing = 0, writing = 0, handed_over = 0, ending = 0;
  int64_t pages_reserved = 0;  // Of D, for prompts that have not come
  int64_t pages_pinned = 0;    // Of P, of prompts that are through and not taken
  WorkerCounters counters;
  WorkerRates rates;
  std::optional<PrefixLoaderStats> prefixes;  // With tiers
};

class Worker {
 public:
  // page: bytes of one, for the rate of writes.
  Worker(NodeId self, SchedulerOptions options, HandoffTimes times, Bytes page = Bytes(0));
  ~Worker();

  // There are tiers below the device: prompts that are computed here get their prefixes from there.
  // Once, before all else; the options given to the constructor report pages.
  void UseTiers(PrefixLoaderOptions options);
  // Who carries its orders out calls it between other calls. Null without tiers.
  PrefixLoader* prefixes();
  // What became of its pages since the last call, in order; only where the options given to the
  // constructor report pages.
  std::vector<PageChange> TakePageChanges();
  std::vector<TierEvent> TakeTierEvents();
  // Whether its device holds the page, to be shared.
  bool HasPage(const BlockKey& key) const;
  // What a prompt's token takes, as measured.
  Seconds PromptToken() const;

  void Receive(NodeId from, HandoffMessage message, Seconds now);
  // ok: the bytes are at the other side, visible to it before any later message is.
  void WriteDone(uint64_t id, bool ok, Seconds now);
  // The peer is gone for good: nothing of it arrives any more, neither messages nor writes.
  void PeerGone(NodeId peer, Seconds now);
  // Leases and resends; at least as often as NextTimer says.
  void Tick(Seconds now);
  std::optional<Seconds> NextTimer() const;

  // The engine's step, as of Scheduler. What lies between the two is measured as the step's time.
  const StepPlan& Plan(Seconds now);
  void Commit(std::vector<SliceResult> results, Seconds now);
  bool HasWork() const;

  // What to do, in order: since the last call.
  std::vector<Outgoing> TakeMessages();
  std::vector<PageWrite> TakeWrites();
  // Of prompts that D has taken since the last call.
  std::vector<HandoverTimes> TakeHandovers();

  WorkerStats stats() const;
  // CHECKs that requests, leases and pages agree. For tests.
  void Verify() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace divisi
