// Which requests a load run sends, and when: made up from rates and lengths, or read from a trace.
// Pure and seeded: the same options give the same requests, to the token.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "divisi/core/ids.h"
#include "divisi/core/random.h"
#include "divisi/core/result.h"
#include "divisi/core/units.h"

namespace divisi {

// A stretch of a prompt. Its tokens are draws 0 .. tokens - 1 of random stream `stream`, so prompts
// that begin with the same stretches share exactly these tokens.
struct PromptPiece {
  uint64_t stream = 0;
  int64_t tokens = 0;
};

struct PlannedRequest {
  Seconds arrival;  // From the start of the run.
  std::vector<PromptPiece> pieces;
  int64_t output_tokens = 1;

  int64_t InputTokens() const;
};

// Token ids of the request's prompt, each from `alphabet`. Requires: alphabet is not empty.
std::vector<TokenId> PromptTokens(const PlannedRequest& request, uint64_t seed,
                                  std::span<const TokenId> alphabet);

class RequestSource {
 public:
  virtual ~RequestSource() = default;
  // The next request, in order of arrival; none when the load is over.
  virtual std::optional<PlannedRequest> Next() = 0;
  // How many there are in all; none when they never end.
  virtual std::optional<int64_t> Count() const = 0;
};

struct SyntheticLoad {
  // Requests in all; none: without end (or, at a finite rate, as many as `duration` holds).
  std::optional<int64_t> count = 1000;
  std::optional<Seconds> duration;  // Only used to size a load without count.
  double requests_per_second = 0;   // 0: all at once.
  // Shape of the gamma distribution of the gaps between arrivals: 1 is a Poisson process, less is
  // burstier, more is steadier.
  double burstiness = 1;
  int64_t input_tokens = 1024;
  int64_t output_tokens = 128;
  double range_ratio = 0;     // Lengths are uniform in length * [1 - ratio, 1 + ratio].
  int64_t prefix_tokens = 0;  // Shared by all requests, before the input tokens.
  uint64_t seed = 0;
};

// Errors: kInvalidArgument naming the option that is out of range.
Result<std::unique_ptr<RequestSource>> MakeSyntheticSource(const SyntheticLoad& load);

// Plays a list; requests are sorted by arrival.
std::unique_ptr<RequestSource> MakeListSource(std::vector<PlannedRequest> requests);

// `count` arrival times, ascending from the first gap on, scaled so that the last is at
// count / requests_per_second: short runs then have the rate that was asked for, as in vLLM.
// Requires: count >= 1, requests_per_second > 0, burstiness > 0.
std::vector<Seconds> ArrivalTimes(int64_t count, double requests_per_second, double burstiness,
                                  uint64_t seed);

// A draw of the gamma distribution of mean shape * scale. Requires: shape > 0.
double Gamma(Random& random, double shape, double scale);

}  // namespace divisi
