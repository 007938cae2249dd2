// Prompts as chains of content: what a recorded load says of its prompts without their text, and a
// load of conversations drawn like one.
#pragma once

#include <cstdint>
#include <vector>

#include "divisi/core/ids.h"
#include "divisi/core/units.h"

namespace divisi {

struct ServiceRequest {
  Seconds arrival;
  int64_t prompt = 1;  // Tokens
  int64_t output = 1;
  // What the prompt says, each for kContentTokens, the last perhaps cut: equal ids are equal
  // tokens. Empty: what no other prompt says.
  std::vector<uint64_t> contents;
};

// As the Mooncake traces have it.
inline constexpr int64_t kContentTokens = 512;

// index: of the request, for one that says what no other does.
std::vector<TokenId> PromptOf(const ServiceRequest& request, uint64_t index);

// Sessions that begin at random; each turn's prompt is the one before, its answer and new text.
struct ConversationLoad {
  int64_t requests = 1000;
  PerSecond sessions{1};
  double turns = 3;              // Mean of a session, at least 1
  Seconds think{30};             // Mean, from a turn's arrival to the next one's
  int64_t systems = 8;           // Opening texts, the k-th with weight 1 / k
  int64_t system_contents = 2;   // Of one, in contents
  double opening_tokens = 6000;  // Of a session's first text: mean, exponential
  double turn_tokens = 1000;     // Of each later one, its answer before it included
  double output = 200;           // Mean, exponential
};

// By arrival.
std::vector<ServiceRequest> DrawConversations(const ConversationLoad& load, uint64_t seed);

// The mean rate of arrivals, from the first to the last.
PerSecond ArrivalRate(const std::vector<ServiceRequest>& requests);
// The same requests, `speed` times as fast.
std::vector<ServiceRequest> Faster(std::vector<ServiceRequest> requests, double speed);

}  // namespace divisi
