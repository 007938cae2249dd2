// What gateways and workers tell each other about a request: the hand-off of a prompt's KV from the
// worker that computes it (P) to the one that decodes (D), and the life of a request on either.
//
//   gateway         D                    P
//     | Reserve     |                    |      D holds pages before P computes anything
//     |------------>|                    |
//     |    Reserved |                    |
//     |<------------|                    |
//     | Prefill     |                    |
//     |--------------------------------->|
//     |             |<== pages written ==|      as chunks are computed, one-sided
//     |             |<-------- Handover--|      the completion marker: after the last write
//     |             |--Taken------------>|      D owns the request; P frees
//     |      Tokens |                    |      the first is P's
//     |<------------|                    |
//     | Renew       |                    |      leases of D and P, and how many tokens came
//     |------------>|------------------->|
//     | Abort       |                    |      ends it anywhere, at any time
//
// Rules.
//  1. A transfer is named by the gateway that issued it, its number there, and the attempt: a retry
//     is another transfer. Messages that name an unknown, ended or not yet known one change
//     nothing.
//  2. Everything that holds pages is a lease of a duration from the last word of its gateway.
//  3. D frees reserved pages only when no write can land any more: P said Stopped, or Handover, or
//     is gone and fenced.
//  4. Every message may come twice, late, or not at all. What has to arrive is sent again.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "divisi/core/ids.h"
#include "divisi/core/result.h"
#include "divisi/core/units.h"
#include "divisi/engine/request.h"
#include "divisi/plan/kv_tiers.h"

namespace divisi {

struct TransferId {
  NodeId gateway;
  uint64_t number = 0;
  uint32_t attempt = 0;
  friend auto operator<=>(const TransferId&, const TransferId&) = default;
};

// G to D: hold pages for the prompt, which `prefill` will write.
struct ReserveMessage {
  TransferId id;
  Request request;
  NodeId prefill;
};
// D to G: these pages; the first `present` need no writing.
struct ReservedMessage {
  TransferId id;
  std::vector<BlockId> pages;
  int64_t present = 0;
};
// G to P: compute the prompt and write its pages to those of `decode`.
struct PrefillMessage {
  TransferId id;
  Request request;
  NodeId decode;
  std::vector<BlockId> pages;
  int64_t present = 0;
};
// Of a prompt's prefix, [t]: pages that who computed it found in its Tier t.
using PagesFound = std::array<int64_t, kSources>;
// P to D, after its last write: the prompt is there, and this is the first token.
struct HandoverMessage {
  TransferId id;
  SampledToken first;
  std::vector<SampledToken> prompt_scores;
  PagesFound found{};
  int64_t cached_tokens = 0;  // Of the prompt: those that needed no computing
};
// D to P: the request is D's.
struct TakenMessage {
  TransferId id;
};
// G to a replica: run the whole request.
struct ServeMessage {
  TransferId id;
  Request request;
};
// A worker to G: output from token number `start` on; `finish` with the last.
struct TokensMessage {
  TransferId id;
  int64_t start = 0;
  std::vector<SampledToken> tokens;
  std::vector<SampledToken> prompt_scores;  // Of the whole prompt, with the first tokens.
  std::optional<FinishReason> finish;
  std::optional<Error> error;       // With finish kError.
  std::optional<PagesFound> found;  // With the first tokens, as cached_tokens.
  int64_t cached_tokens = 0;
};
// A worker to G: it does not, or no longer, do its part. kResourceExhausted: not now.
struct RefusedMessage {
  TransferId id;
  Error error;
};
// G to a worker: its lease begins anew; `have` tokens have come.
struct RenewMessage {
  TransferId id;
  int64_t have = 0;
};
// Ends the transfer at whoever gets it. From D to P it asks for Stopped.
struct AbortMessage {
  TransferId id;
};
// P to D: no write of this transfer is under way, and none will be.
struct StoppedMessage {
  TransferId id;
};

using HandoffMessage = std::variant<ReserveMessage, ReservedMessage, PrefillMessage,
                                    HandoverMessage, TakenMessage, ServeMessage, TokensMessage,
                                    RefusedMessage, RenewMessage, AbortMessage, StoppedMessage>;

// Of any message.
TransferId IdOf(const HandoffMessage& message);

// Something to be sent.
struct Outgoing {
  NodeId to;
  HandoffMessage message;
};

struct HandoffTimes {
  Seconds lease{10};        // From the last word of the gateway.
  Seconds renew{2};         // How often it has one.
  Seconds resend{0.5};      // What has not been answered is sent again after this.
  Seconds reserve{2};       // Until D has answered.
  Seconds prefill{60};      // From Prefill to the first token,
  Seconds per_token{0.05};  // and for each of the prompt's: a slow machine computes 20 a second.
  Seconds taken{10};        // From Handover to Taken.
  Seconds token{30};        // Between tokens.
  Seconds total{120};       // Until the first token, retries included; and the same for each.
  Seconds backoff{0.05};    // First wait after a refusal; doubles, up to `most_backoff`.
  Seconds most_backoff{1};
};

}  // namespace divisi
