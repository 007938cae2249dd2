#include "divisi/sim/service_load.h"

#include <algorithm>
#include <cmath>

#include "divisi/core/check.h"
#include "divisi/core/random.h"

namespace divisi {
namespace {

constexpr uint64_t kTokens = 100'000;  // Kinds of them
constexpr int64_t kMostPrompt = 100'000;

uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// The k-th of `count` with weight 1 / k.
int64_t DrawRank(Random& random, int64_t count) {
  double sum = 0;
  for (int64_t k = 1; k <= count; ++k) sum += 1.0 / static_cast<double>(k);
  double left = random.Uniform() * sum;
  for (int64_t k = 1; k < count; ++k) {
    left -= 1.0 / static_cast<double>(k);
    if (left < 0) return k - 1;
  }
  return count - 1;
}

int64_t DrawLength(Random& random, double mean) {
  return std::max<int64_t>(1, static_cast<int64_t>(random.Exponential(mean)));
}

// All turns of one session. A cut content is another one than when it is full, as in the traces.
void DrawSession(const ConversationLoad& load, Seconds begin, uint64_t session, Random& random,
                 std::vector<ServiceRequest>& requests) {
  const auto system = static_cast<uint64_t>(DrawRank(random, load.systems));
  int64_t prompt = load.system_contents * kContentTokens + DrawLength(random, load.opening_tokens);
  Seconds at = begin;
  while (prompt <= kMostPrompt) {
    ServiceRequest& request = requests.emplace_back();
    request = {.arrival = at, .prompt = prompt, .output = DrawLength(random, load.output)};
    const int64_t contents = (prompt + kContentTokens - 1) / kContentTokens;
    for (int64_t i = 0; i < contents; ++i) {
      const auto place = static_cast<uint64_t>(i);
      const bool shared = i < load.system_contents;
      const bool cut = (i + 1) * kContentTokens > prompt;
      const auto length = static_cast<uint64_t>(cut ? prompt : 0);
      const uint64_t of = shared ? system : load.systems + session;
      request.contents.push_back(Mix(Mix(of) ^ Mix(place << 32 | length)));
    }
    if (!random.Chance(1 - 1 / load.turns)) return;
    at += Seconds(random.Exponential(load.think.value));
    prompt += DrawLength(random, load.turn_tokens);
  }
}

}  // namespace

std::vector<TokenId> PromptOf(const ServiceRequest& request, uint64_t index) {
  std::vector<TokenId> tokens;
  tokens.reserve(static_cast<size_t>(request.prompt));
  const auto at = [&](int64_t i) -> uint64_t {
    if (request.contents.empty()) return Mix(~index) + static_cast<uint64_t>(i);
    const uint64_t content = request.contents[static_cast<size_t>(i / kContentTokens)];
    return Mix(content) + static_cast<uint64_t>(i % kContentTokens);
  };
  CHECK(request.contents.empty() ||
            static_cast<int64_t>(request.contents.size()) * kContentTokens >= request.prompt,
        "{} contents for {} tokens", request.contents.size(), request.prompt);
  for (int64_t i = 0; i < request.prompt; ++i) {
    tokens.push_back(static_cast<TokenId>(at(i) % kTokens));
  }
  return tokens;
}

std::vector<ServiceRequest> DrawConversations(const ConversationLoad& load, uint64_t seed) {
  CHECK(load.turns >= 1 && load.systems >= 1 && load.sessions.value > 0);
  Random random(seed);
  std::vector<ServiceRequest> requests;
  Seconds begin;
  // Sessions that begin later than the last request that is kept do not count.
  for (uint64_t session = 0; static_cast<int64_t>(requests.size()) < 2 * load.requests; ++session) {
    begin += Seconds(random.Exponential(1 / load.sessions.value));
    DrawSession(load, begin, session, random, requests);
  }
  std::ranges::stable_sort(requests, {}, &ServiceRequest::arrival);
  requests.resize(static_cast<size_t>(load.requests));
  return requests;
}

PerSecond ArrivalRate(const std::vector<ServiceRequest>& requests) {
  CHECK(requests.size() >= 2, "a rate of {} requests", requests.size());
  const Seconds span = requests.back().arrival - requests.front().arrival;
  return PerSecond(static_cast<double>(requests.size() - 1) / span.value);
}

std::vector<ServiceRequest> Faster(std::vector<ServiceRequest> requests, double speed) {
  for (ServiceRequest& request : requests) request.arrival = request.arrival / speed;
  return requests;
}

}  // namespace divisi
