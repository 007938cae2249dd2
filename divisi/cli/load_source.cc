#include "divisi/cli/load_source.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "divisi/core/format.h"

namespace divisi {
namespace {

// Streams of random numbers by use, under one seed. Prompt pieces use the streams from
// kUniqueStreams up; a trace's block ids stay below it.
constexpr uint64_t kArrivalStream = 1ull << 60;
constexpr uint64_t kInputStream = kArrivalStream + 1;
constexpr uint64_t kOutputStream = kArrivalStream + 2;
constexpr uint64_t kPrefixStream = kArrivalStream + 3;
constexpr uint64_t kUniqueStreams = 1ull << 61;

// Enough for a week at 16 requests a second; beyond it, the list of arrivals alone takes too much.
constexpr int64_t kMaxRequests = 10'000'000;
// Longer prompts than any model's context, and still no danger to memory.
constexpr int64_t kMaxLength = 10'000'000;

int64_t DrawLength(uint64_t seed, uint64_t stream, int64_t index, int64_t length, double ratio) {
  const auto mean = static_cast<double>(length);
  const auto low = static_cast<int64_t>(std::floor(mean * (1 - ratio)));
  const auto high = static_cast<int64_t>(std::ceil(mean * (1 + ratio)));
  const double unit = UniformAt(seed, stream, static_cast<uint64_t>(index));
  return low + static_cast<int64_t>(unit * static_cast<double>(high - low + 1));
}

class SyntheticSource final : public RequestSource {
 public:
  explicit SyntheticSource(const SyntheticLoad& load) : load_(load) {
    if (load_.requests_per_second <= 0) return;
    if (!load_.count) {
      load_.count = std::max<int64_t>(
          1, static_cast<int64_t>(std::ceil(load_.requests_per_second * load_.duration->value)));
    }
    arrivals_ = ArrivalTimes(*load_.count, load_.requests_per_second, load_.burstiness, load_.seed);
  }

  std::optional<PlannedRequest> Next() override {
    if (load_.count && next_ >= *load_.count) return {};
    PlannedRequest request;
    if (!arrivals_.empty()) request.arrival = arrivals_[static_cast<size_t>(next_)];
    if (load_.prefix_tokens > 0) request.pieces.push_back({kPrefixStream, load_.prefix_tokens});
    const int64_t input =
        DrawLength(load_.seed, kInputStream, next_, load_.input_tokens, load_.range_ratio);
    // A prompt has at least one token.
    const int64_t least = load_.prefix_tokens > 0 ? 0 : 1;
    request.pieces.push_back(
        {kUniqueStreams + static_cast<uint64_t>(next_), std::max(input, least)});
    request.output_tokens = std::max<int64_t>(
        1, DrawLength(load_.seed, kOutputStream, next_, load_.output_tokens, load_.range_ratio));
    ++next_;
    return request;
  }

  std::optional<int64_t> Count() const override { return load_.count; }

 private:
  SyntheticLoad load_;
  std::vector<Seconds> arrivals_;
  int64_t next_ = 0;
};

class ListSource final : public RequestSource {
 public:
  explicit ListSource(std::vector<PlannedRequest> requests) : requests_(std::move(requests)) {
    std::ranges::stable_sort(requests_, {}, &PlannedRequest::arrival);
  }
  std::optional<PlannedRequest> Next() override {
    if (next_ >= requests_.size()) return {};
    return std::move(requests_[next_++]);
  }
  std::optional<int64_t> Count() const override { return static_cast<int64_t>(requests_.size()); }

 private:
  std::vector<PlannedRequest> requests_;
  size_t next_ = 0;
};

}  // namespace

int64_t PlannedRequest::InputTokens() const {
  int64_t tokens = 0;
  for (const PromptPiece& piece : pieces) tokens += piece.tokens;
  return tokens;
}

std::vector<TokenId> PromptTokens(const PlannedRequest& request, uint64_t seed,
                                  std::span<const TokenId> alphabet) {
  CHECK(!alphabet.empty());
  std::vector<TokenId> tokens;
  tokens.reserve(static_cast<size_t>(request.InputTokens()));
  for (const PromptPiece& piece : request.pieces) {
    Random random(seed, piece.stream);
    for (int64_t i = 0; i < piece.tokens; ++i) {
      tokens.push_back(alphabet[random.Next64() % alphabet.size()]);
    }
  }
  return tokens;
}

Result<std::unique_ptr<RequestSource>> MakeSyntheticSource(const SyntheticLoad& load) {
  const auto bad = [](std::string_view option, std::string_view expected) {
    return Error{Code::kInvalidArgument, Format("{} must be {}", option, expected)};
  };
  if (load.count && (*load.count < 1 || *load.count > kMaxRequests)) {
    return bad("--num-prompts", Format("from 1 to {}", kMaxRequests));
  }
  if (!(load.requests_per_second >= 0) || !std::isfinite(load.requests_per_second)) {
    return bad("--request-rate", "above 0, or inf");
  }
  if (!load.count && load.requests_per_second > 0) {
    CHECK(load.duration, "a load at a finite rate needs a count or a duration");
    if (load.requests_per_second * load.duration->value > static_cast<double>(kMaxRequests)) {
      return bad("--request-rate times --duration", Format("at most {}", kMaxRequests));
    }
  }
  if (!(load.burstiness > 0) || !std::isfinite(load.burstiness)) {
    return bad("--burstiness", "above 0");
  }
  if (!(load.range_ratio >= 0 && load.range_ratio < 1)) {
    return bad("--range-ratio", "at least 0 and below 1");
  }
  if (load.input_tokens < 1 || load.input_tokens > kMaxLength) {
    return bad("--input-len", Format("from 1 to {}", kMaxLength));
  }
  if (load.output_tokens < 1 || load.output_tokens > kMaxLength) {
    return bad("--output-len", Format("from 1 to {}", kMaxLength));
  }
  if (load.prefix_tokens < 0 || load.prefix_tokens > kMaxLength) {
    return bad("--prefix-len", Format("from 0 to {}", kMaxLength));
  }
  return std::unique_ptr<RequestSource>(std::make_unique<SyntheticSource>(load));
}

std::unique_ptr<RequestSource> MakeListSource(std::vector<PlannedRequest> requests) {
  return std::make_unique<ListSource>(std::move(requests));
}

std::vector<Seconds> ArrivalTimes(int64_t count, double requests_per_second, double burstiness,
                                  uint64_t seed) {
  CHECK(count >= 1 && requests_per_second > 0 && burstiness > 0);
  Random random(seed, kArrivalStream);
  std::vector<Seconds> times(static_cast<size_t>(count));
  Seconds at;
  for (Seconds& time : times) {
    at += Seconds(Gamma(random, burstiness, 1 / (requests_per_second * burstiness)));
    time = at;
  }
  if (at.value <= 0) return times;  // Gaps too small for a double: everything at once.
  const double scale = static_cast<double>(count) / requests_per_second / at.value;
  for (Seconds& time : times) time = time * scale;
  return times;
}

// Source: Marsaglia and Tsang, "A Simple Method for Generating Gamma Variables", 2000; below shape
// 1 a draw of shape + 1 times U^(1 / shape), section 6 there.
double Gamma(Random& random, double shape, double scale) {
  CHECK(shape > 0, "shape {}", shape);
  if (shape < 1) {
    const double boost = std::pow(1 - random.Uniform(), 1 / shape);
    return boost * Gamma(random, shape + 1, scale);
  }
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {  // Ends: each round accepts with probability above 0.95.
    const double x = random.Normal();
    const double v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    const double u = 1 - random.Uniform();
    if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v * scale;
  }
}

}  // namespace divisi
