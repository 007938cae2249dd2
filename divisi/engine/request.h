// A request inside a process: what was asked, how far it is, and how it ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "divisi/core/ids.h"
#include "divisi/core/units.h"
#include "divisi/kv/session_state.h"
#include "divisi/model/sampler.h"

namespace divisi {

inline constexpr size_t kMaxCacheSaltBytes = 256;

// Another worker whose host memory should have the first pages of a prompt.
struct PrefixPeer {
  std::string address;  // HOST:PORT, where it gives them
  int64_t pages = 0;
  friend bool operator==(const PrefixPeer&, const PrefixPeer&) = default;
};
inline constexpr size_t kMaxPeerAddressBytes = 300;  // A host's name has 253 at most.

struct Request {
  RequestId id = 0;
  std::vector<TokenId> prompt;  // At least one token.
  SamplingParams sampling;
  int64_t max_tokens = 16;  // Output tokens; 0: the prompt is scored alone.
  std::vector<TokenId>
      stop_token_ids;        // The model's end tokens and the request's own; these end it.
  int prompt_logprobs = -1;  // As SamplingParams::top_logprobs, for the prompt's tokens.
  // Prefill for another worker: the prompt is computed and the first token drawn, and unless that
  // ends the request, its pages are held until it is cancelled. It is never preempted.
  bool hold_after_prompt = false;
  // Its pages are shared only with requests of the same salt; kMaxCacheSaltBytes at most.
  std::string cache_salt;
  // Whether its conversation goes on, as far as its client says.
  SessionState session = SessionState::kUnknown;
  // What the tiers here lack of its prefix may be read there.
  std::optional<PrefixPeer> peer;
};

// kStop: an end token or (found by the text side) a stop string. kLength: max_tokens or the
// context.
enum class FinishReason { kStop, kLength, kCancelled, kError };

// A request being served. Owned by the scheduler.
struct Sequence {
  Request request;
  std::vector<TokenId> tokens;  // Prompt, then output.
  int64_t computed = 0;         // Tokens whose K and V are in pages: a prefix of `tokens`.

  int64_t OutputTokens() const {
    return static_cast<int64_t>(tokens.size() - request.prompt.size());
  }
};

// When things happened to a request, in the engine's clock. Zero: not yet.
struct Timeline {
  Seconds arrived;
  Seconds scheduled;  // First slice began.
  Seconds first_token;
  Seconds finished;
  int64_t cached_tokens = 0;  // Prompt tokens found in shared pages.
  int preemptions = 0;
  std::string route;  // How a cluster chose its workers, where it is asked to keep that.
};

}  // namespace divisi
