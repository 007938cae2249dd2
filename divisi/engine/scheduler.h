// Which tokens run in the next step: continuous batching with chunked prefill under a token budget,
// page allocation, prefix sharing, preemption by recompute. A pure state machine: no clock, no I/O,
// no threads; the same calls give the same plans.
//
// A step is filled in this order:
//   1. Decodes, oldest request first: one token each. A decode that needs a page when all are taken
//      preempts the youngest running request (perhaps itself): that one's pages go, its tokens
//      stay, and it waits again in its place by arrival.
//   2. The prefill under way, if any: as much as budget and pages allow. It never preempts; without
//      pages it waits for decodes to end.
//   3. Waiting requests by arrival. One is admitted when the pages of all its tokens fit beside one
//      page for each running request and what the prefill under way still needs: then it will
//      hardly be preempted. One that lacks pages stops those behind it; two kinds are passed over:
//      - A prompt longer than what is left of the step, while a prefill is under way: there is at
//        most one between steps, and it leaves a quarter of each step to shorter prompts, so that a
//        long prompt delays a short one by a step, not by its whole length. What none of them takes
//        it gets after all.
//      - One whose next page is just being computed by another request: it waits to share it.
//
// Why nothing starves: the oldest running request is never preempted while another runs, and fits
// the pool alone (Add refuses what does not), so it ends; a prefill that waits for pages stops
// admissions until the running decodes, each bounded by max_tokens, have ended; and being passed
// over ends with the other's prefill or after a fixed number of steps. So the oldest request ends
// in bounded time, then the next is the oldest.
//
// Held and reserved requests have pages that only another worker's answer frees, within its lease:
// decodes that find none then wait rather than preempt them. So it is with pages that are being
// loaded. A request whose prefix has been loaded waits with its pages; they go to whoever is ahead
// of it and lacks some, the youngest's first.
//
// A page is published for sharing when the step that filled it is committed, and found from then
// on: complete before visible. Sharing stops short of a request's last token, which must be
// computed to draw the next, and of prompt tokens that still have to be scored. Source: continuous
// batching, Yu et al., "Orca", OSDI 2022; paging and preemption, Kwon et al., "PagedAttention",
// SOSP 2023; chunked prefill, Agrawal et al., "Sarathi-Serve", OSDI 2024.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "divisi/core/result.h"
#include "divisi/engine/executor.h"
#include "divisi/kv/block_key.h"

namespace divisi {

struct SchedulerOptions {
  int64_t max_sequences = 256;        // Running at once.
  int64_t max_batched_tokens = 2048;  // Per step. Also bounds the running sequences.
  int64_t max_model_len = 2048;       // Prompt plus output of one request.
  int64_t max_waiting =
      1024;            // Queued requests; beyond it Add refuses. Preempted ones do not count.
  int64_t blocks = 0;  // KV pages.
  bool share_prefixes = true;
  std::vector<uint8_t> model_fingerprint;  // Part of every page's key,
  std::string page_format;                 // as this is.
  bool report_pages = false;               // For TakePageChanges.
  int64_t vocab = 0;                       // Token ids are below it; 0: not known, not checked.
};

// What the pages of a request share.
KeySpace KeySpaceOf(const SchedulerOptions& options, const Request& request);

// The longest prompt plus output that a request can reach: max_model_len, or what the pool holds.
int64_t ContextLimit(const SchedulerOptions& options);

// Whether the request could ever run.
// Errors: kInvalidArgument for an empty prompt, max_tokens below 0, or a token id in the prompt,
// the logit bias or the stop tokens that the model does not have; kOutOfRange when the prompt, with
// one token of output if any is asked for, is beyond ContextLimit.
Result<void> CheckRequest(const SchedulerOptions& options, const Request& request);

// Of a token that another process sent. Errors: kInvalidArgument, with `where` it stood.
Result<void> CheckTokenId(const SchedulerOptions& options, TokenId id, const char* where);

// What happened to a request in a committed step.
struct SchedulerEvent {
  enum class Kind {
    kScheduled,
    kPreempted,
    kLost,  // Its prefix did not come: what kScheduled said of cached tokens is void.
    kPromptScores,
    kComputed,
    kToken,
    kHeld,
    kFinished
  };
  Kind kind = Kind::kToken;
  RequestId request = 0;
  int64_t cached_tokens = 0;                  // kScheduled: prompt tokens found in shared pages.
  int64_t computed_tokens = 0;                // kComputed: of the prompt, in pages by now.
  SampledToken token;                         // kToken
  std::vector<SampledToken> prompt_scores;    // kPromptScores
  FinishReason reason = FinishReason::kStop;  // kFinished
  std::optional<Error> error;                 // kFinished by kError: why.
};

// Pages for a prompt that another worker computes.
struct Reservation {
  std::vector<BlockId> pages;  // Of the whole prompt, in order.
  int64_t present = 0;         // The first this many hold their content already.
};

// Pages of a request's prompt that are brought into the pool from elsewhere.
struct PrefixLoad {
  uint64_t id = 0;
  int64_t present = 0;         // The pool held the first this many;
  std::vector<BlockId> pages;  // these follow them and are to be filled.
};

// A page that can be found from now on, or no longer.
struct PageChange {
  enum class Kind { kStored, kRemoved };
  Kind kind = Kind::kStored;
  BlockKey key;
  // kStored:
  BlockKey parent;
  BlockKey root;
  int64_t position = 0;  // Of its first token
  BlockId block = 0;
  std::vector<TokenId> tokens;
  bool loaded = false;  // Not computed here
};

struct SchedulerStats {
  int64_t running = 0;
  int64_t held = 0;            // Prompts computed for another worker that has not taken them yet.
  int64_t reserved = 0;        // Requests whose prompts another worker computes.
  int64_t loading = 0;         // Requests that wait for their prefix.
  int64_t waiting = 0;         // Preempted requests among them.
  int64_t prompt_backlog = 0;  // Prompt tokens not computed yet, of running and waiting ones.
  int64_t blocks_total = 0;
  int64_t blocks_used = 0;            // Held by sequences.
  int64_t blocks_cached = 0;          // Held by none, content kept for sharing.
  int64_t preemptions = 0;            // Counters since the start.
  int64_t evictions = 0;              // Cached pages given up.
  int64_t prefix_queried_tokens = 0;  // Prompt tokens of requests whose prefix was looked up.
  int64_t prefix_hit_tokens = 0;      // Of them those found in pages, loaded ones included.
  int64_t prefix_loaded_tokens = 0;   // Of those: in pages that were loaded for the request.
  int64_t lost_prefixes = 0;  // Requests that computed anew because their prefix did not come.
};

class Scheduler {
 public:
  explicit Scheduler(SchedulerOptions options);
  ~Scheduler();

  // Errors: as CheckRequest; kResourceExhausted when the queue is full; kInvalidArgument when its
  // id is in use.
  Result<void> Add(Request request);

  // Decode for another worker's prefill: pages for the request's prompt, before anybody computes
  // it. The request then waits for Adopt, or for Cancel, before which nothing may be written to its
  // pages any more. Errors: as CheckRequest; kResourceExhausted when pages or a place among the
  // running are lacking now; kInvalidArgument when its id is in use.
  Result<Reservation> Reserve(Request request);
  // The pages of a reserved request hold its prompt's K and V, and this is its first token. It runs
  // from now on. The events are kScheduled, kToken and perhaps kFinished. None for an unknown id,
  // or one that is not reserved.
  std::vector<SchedulerEvent> Adopt(RequestId id, SampledToken first);
  // Pages of a request that runs, is held or reserved, in order; empty for others. Valid until the
  // next call that is not const.
  std::span<const BlockId> PagesOf(RequestId id) const;

  // A request whose prompt's first pages lie elsewhere. keys: of the prompt's pages, at least
  // `until`; pages [present, until) are to be filled. It keeps its place by arrival, but waits for
  // EndLoad or FollowLoad. Others with the same prefix wait for it, as for one that is computed.
  // Errors: as Add; kResourceExhausted where pages are lacking now: Add it then.
  Result<PrefixLoad> AddLoading(Request request, std::vector<BlockKey> keys, int64_t until);
  // The same for a request that Add took and that has not run. Errors: kNotFound: there is none
  // such; kResourceExhausted as above: it waits on.
  Result<PrefixLoad> LoadWaiting(RequestId request, int64_t until);
  // It may run now, while its pages are still filled; each layer of it waits at the gate.
  void FollowLoad(uint64_t load, std::shared_ptr<LayerGate> gate);
  // Nothing is written to the load's pages any more. loaded: so many of them, the first ones, hold
  // their content. Once for every load, whatever became of its request. With a gate that failed
  // the gate says so first.
  void EndLoad(uint64_t load, int64_t loaded);
  // How many of a prompt's pages the pool holds, from the first on.
  int64_t CachedPages(std::span<const BlockKey> keys) const;
  // Whether who is next in the queue waits for pages that others have, as of the last step.
  bool Blocked() const;
  // How many more requests the queue takes.
  int64_t Room() const;

  // Since the last call, in order. Nothing without options.report_pages.
  std::vector<PageChange> TakePageChanges();
  // Requests that waited with loaded pages, which others needed: they wait on without.
  std::vector<RequestId> TakeStripped();
  // Keeps a page's content in place, to be read; false when it is no longer there.
  bool PinPage(BlockId block, const BlockKey& key);
  void UnpinPage(BlockId block);

  // Ends a request wherever it is: no event of it follows. Its pages are free when this returns,
  // unless a step that uses them is in flight: then at its Commit. False when there is no such
  // request (already ended).
  bool Cancel(RequestId id);

  // The next step. Empty when nothing can run: HasWork() is false, or what waits needs pages that
  // held and reserved requests have.
  // Requires: the last plan was committed, if it was not empty.
  const StepPlan& Plan();

  // Takes the step's results and gives what happened: first who was preempted or scheduled by the
  // plan, then the results in order of the plan's slices. kScheduled comes once for each request,
  // at its first slice; kToken's tokens in order, without gaps or repetition; kFinished once, last.
  // Requires: one result per slice of a plan that was not empty.
  std::vector<SchedulerEvent> Commit(std::vector<SliceResult> results);

  bool HasWork() const;
  SchedulerStats stats() const;

  // CHECKs that pages, queues and requests agree; time in proportion to all of them. For tests.
  void Verify() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace divisi
