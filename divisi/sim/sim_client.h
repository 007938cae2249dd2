// The clients of a simulated cluster: what each asks, when, what it has to get, and what it got.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "divisi/control/dispatcher.h"
#include "divisi/core/random.h"

namespace divisi {

// Longest prompt and output of a simulated client together, and the tokens there are.
inline constexpr int64_t kSimMaxModelLen = 120;
inline constexpr int64_t kSimVocab = 50;

class SimClient {
 public:
  // Prompts of any length around page edges, some beginning alike; some end by a stop token, some
  // after one token. What it has to get is what one scheduler alone gives.
  // alike: most begin like others, and long after those.
  static SimClient Draw(Random& random, bool alike);

  const Request& request() const { return request_; }
  Seconds arrives() const { return arrives_; }
  std::optional<Seconds> cancels() const { return cancels_; }
  bool ended() const { return ended_; }
  bool got_tokens() const { return !got_.empty(); }
  void End() { ended_ = true; }

  // What is wrong with the event; empty: nothing.
  std::string Take(const DispatchEvent& event);

 private:
  void RunAlone();

  Request request_;
  std::vector<TokenId> expected_;
  FinishReason reason_ = FinishReason::kLength;
  Seconds arrives_;
  std::optional<Seconds> cancels_;
  std::vector<TokenId> got_;
  bool ended_ = false;
};

}  // namespace divisi
