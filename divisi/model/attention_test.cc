// Attention over pages: against a naive twin in double, and bit for bit independent of everything
// but the row's own sequence: batch, chunks, page numbers, threads, instruction set, stale bytes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "divisi/core/random.h"
#include "divisi/model/ops.h"

namespace divisi {
namespace {

float FromBf16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

struct Shape {
  int heads = 4, kv_heads = 2, dim = 32;
  ComputeType type = ComputeType::kBf16;
};

// One sequence's q, k, v before rotation, [tokens, ...] each.
struct Sample {
  std::vector<float> q, k, v;
  int64_t tokens = 0;
};

Sample MakeSample(Random& random, const Shape& shape, int64_t tokens) {
  Sample sample;
  sample.tokens = tokens;
  const auto fill = [&](std::vector<float>& out, int64_t width) {
    out.resize(static_cast<size_t>(tokens * width));
    for (float& x : out) x = static_cast<float>(random.Normal());
  };
  fill(sample.q, shape.heads * shape.dim);
  fill(sample.k, shape.kv_heads * shape.dim);
  fill(sample.v, shape.kv_heads * shape.dim);
  return sample;
}

RopeTable RopeOf(const Shape& shape) {
  ModelSpec spec;
  spec.head_dim = shape.dim;
  return MakeRopeTable(spec, 1024);
}

// A server in small: pages filled with what must not matter, sequences on chosen pages.
class Runner {
 public:
  Runner(const Shape& shape, Isa isa, int threads, int64_t pages, uint8_t garbage)
      : shape_(shape),
        pool_(threads),
        ops_(isa, pool_),
        rope_(RopeOf(shape)),
        pages_(*KvPages::Create(
            {.layers = 2, .kv_heads = shape.kv_heads, .head_dim = shape.dim, .type = shape.type},
            pages)) {
    std::memset(pages_.Head(0, 0, 0), garbage,
                static_cast<size_t>(pages * pages_.layout().PageBytes()));
  }

  struct Part {
    const Sample* sample;
    std::span<const BlockId> pages;
    int64_t start, count;
  };
  // Runs the parts as one step; returns the rows of each, as bytes.
  std::vector<std::vector<std::byte>> Step(const std::vector<Part>& parts,
                                           const Ops::QkvOptions& options = {}) {
    std::vector<float> q, k, v;
    std::vector<SequenceRows> rows;
    int64_t total = 0;
    for (const Part& part : parts) {
      Append(q, part.sample->q, part, shape_.heads * shape_.dim);
      Append(k, part.sample->k, part, shape_.kv_heads * shape_.dim);
      Append(v, part.sample->v, part, shape_.kv_heads * shape_.dim);
      rows.push_back({total, part.count, part.start, part.pages});
      total += part.count;
    }
    const int64_t q_cols = shape_.heads * shape_.dim, kv_cols = shape_.kv_heads * shape_.dim;
    const int64_t element = pages_.layout().ElementSize();
    std::vector<std::byte> q_out(static_cast<size_t>(total * q_cols * element));
    std::vector<std::byte> out(q_out.size());
    const Activations q_rows{q_out.data(), shape_.type, total, q_cols};
    const KvLayer kv{.pages = pages_, .layer = 1, .sequences = rows};
    ops_.StoreQkv({.q = {q.data(), total, q_cols},
                   .k = {k.data(), total, kv_cols},
                   .v = {v.data(), total, kv_cols},
                   .q_out = q_rows},
                  rope_, options, kv);
    ops_.Attention(q_rows, kv, {out.data(), shape_.type, total, q_cols});
    std::vector<std::vector<std::byte>> results;
    for (const SequenceRows& r : rows) {
      const auto begin = out.begin() + r.first_row * q_cols * element;
      results.emplace_back(begin, begin + r.rows * q_cols * element);
    }
    return results;
  }

 private:
  static void Append(std::vector<float>& to, const std::vector<float>& from, const Part& part,
                     int64_t width) {
    to.insert(to.end(), from.begin() + part.start * width,
              from.begin() + (part.start + part.count) * width);
  }

  Shape shape_;
  ThreadPool pool_;
  Ops ops_;
  RopeTable rope_;
  KvPages pages_;
};

std::vector<BlockId> Iota(int64_t count, BlockId first = 0) {
  std::vector<BlockId> pages(static_cast<size_t>(count));
  std::iota(pages.begin(), pages.end(), first);
  return pages;
}

// The whole sequence in one step on pages 0, 1, ...
std::vector<std::byte> Whole(const Shape& shape, const Sample& sample, Isa isa, uint8_t garbage = 0,
                             const Ops::QkvOptions& options = {}) {
  const std::vector<BlockId> pages = Iota((sample.tokens + 15) / 16);
  Runner runner(shape, isa, 1, static_cast<int64_t>(pages.size()), garbage);
  return runner.Step({{&sample, pages, 0, sample.tokens}}, options)[0];
}

std::vector<double> Floats(const std::vector<std::byte>& bytes, ComputeType type) {
  std::vector<double> out;
  const size_t size = type == ComputeType::kBf16 ? 2 : 4;
  for (size_t i = 0; i < bytes.size(); i += size) {
    uint16_t half;
    float single;
    std::memcpy(&half, &bytes[i], 2);
    if (size == 4) std::memcpy(&single, &bytes[i], 4);
    out.push_back(size == 2 ? FromBf16(half) : single);
  }
  return out;
}

// Normalised and rotated head vectors in double.
std::vector<double> Rotated(const Shape& shape, const std::vector<float>& x, const RopeTable& rope,
                            int heads, std::span<const float> gain, double eps) {
  std::vector<double> out(x.begin(), x.end());
  const int half = shape.dim / 2;
  for (size_t head = 0; head * static_cast<size_t>(shape.dim) < x.size(); ++head) {
    double* h = &out[head * static_cast<size_t>(shape.dim)];
    double squares = 0;
    for (int i = 0; i < shape.dim; ++i) squares += h[i] * h[i];
    for (int i = 0; i < shape.dim && !gain.empty(); ++i) {
      h[i] *= gain[static_cast<size_t>(i)] / std::sqrt(squares / shape.dim + eps);
    }
    const size_t position = head / static_cast<size_t>(heads);
    for (int i = 0; i < half; ++i) {
      const size_t at = position * static_cast<size_t>(half) + static_cast<size_t>(i);
      const double c = rope.cosine[at], s = rope.sine[at], a = h[i], b = h[i + half];
      h[i] = a * c - b * s;
      h[i + half] = b * c + a * s;
    }
  }
  return out;
}

std::vector<double> Twin(const Shape& shape, const Sample& sample, const Ops::QkvOptions& options) {
  const RopeTable rope = RopeOf(shape);
  const auto q = Rotated(shape, sample.q, rope, shape.heads, options.q_gain, options.eps);
  const auto k = Rotated(shape, sample.k, rope, shape.kv_heads, options.k_gain, options.eps);
  std::vector<double> out(q.size());
  const int group = shape.heads / shape.kv_heads;
  const auto at = [&](int64_t t, int heads, int head) {
    return static_cast<size_t>((t * heads + head) * shape.dim);
  };
  for (int64_t t = 0; t < sample.tokens; ++t) {
    for (int head = 0; head < shape.heads; ++head) {
      std::vector<double> weights;
      double total = 0;
      for (int64_t s = 0; s <= t; ++s) {
        double score = 0;
        for (int i = 0; i < shape.dim; ++i) {
          score += q[at(t, shape.heads, head) + static_cast<size_t>(i)] *
                   k[at(s, shape.kv_heads, head / group) + static_cast<size_t>(i)];
        }
        weights.push_back(std::exp(score / std::sqrt(shape.dim)));
        total += weights.back();
      }
      for (int64_t s = 0; s <= t; ++s) {
        for (int i = 0; i < shape.dim; ++i) {
          out[at(t, shape.heads, head) + static_cast<size_t>(i)] +=
              weights[static_cast<size_t>(s)] / total *
              sample.v[at(s, shape.kv_heads, head / group) + static_cast<size_t>(i)];
        }
      }
    }
  }
  return out;
}

constexpr Shape kShapes[] = {{4, 2, 32, ComputeType::kBf16},   {4, 2, 32, ComputeType::kF32},
                             {16, 8, 128, ComputeType::kBf16}, {6, 2, 72, ComputeType::kBf16},
                             {3, 3, 10, ComputeType::kBf16},   {5, 1, 70, ComputeType::kF32},
                             {7, 1, 64, ComputeType::kBf16}};

TEST(Attention, IsWithinRoundingOfTheTwinInDouble) {
  Random random(11);
  for (const Shape& shape : kShapes) {
    const Sample sample = MakeSample(random, shape, 131);
    std::vector<float> q_gain(static_cast<size_t>(shape.dim)), k_gain(q_gain.size());
    for (float& g : q_gain) g = static_cast<float>(0.5 + random.Uniform());
    for (float& g : k_gain) g = static_cast<float>(0.5 + random.Uniform());
    for (const bool norm : {false, true}) {
      Ops::QkvOptions options;
      if (norm) options = {.q_gain = q_gain, .k_gain = k_gain, .eps = 1e-6};
      const auto expected = Twin(shape, sample, options);
      const auto out = Floats(Whole(shape, sample, SupportedIsas().back(), 0, options), shape.type);
      // bf16: q, k, v, p and the result are each rounded by up to 2^-9. Scores (|q . k| / sqrt(d)
      // is a few units) move by a few 2^-9 * |q||k|/sqrt(d), and so do the weights; v is at most
      // about
      // 4. f32: the same with 2^-24, and some roundings more.
      const double bound = shape.type == ComputeType::kBf16 ? 0.06 : 1e-5;
      double squares = 0;
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_NEAR(out[i], expected[i], bound) << "dim " << shape.dim << " at " << i;
        squares += std::pow(out[i] - expected[i], 2.0);
      }
      // A lost or doubled position would show in the mean long before the bound.
      const double mean = std::sqrt(squares / static_cast<double>(out.size()));
      EXPECT_LT(mean, shape.type == ComputeType::kBf16 ? 6e-3 : 1e-6) << "dim " << shape.dim;
    }
  }
}

TEST(Attention, GivesTheSameBitsOnEveryIsa) {
  Random random(12);
  for (const Shape& shape : kShapes) {
    const Sample sample = MakeSample(random, shape, 100);
    const auto expected = Whole(shape, sample, Isa::kScalar);
    for (const Isa isa : SupportedIsas()) {
      EXPECT_EQ(Whole(shape, sample, isa), expected) << IsaName(isa) << " dim " << shape.dim;
    }
  }
}

// Infinities and not-a-number in q, k and v, as weights that overflow would make them.
Sample Spoilt(Random& random, const Shape& shape, int64_t tokens) {
  Sample sample = MakeSample(random, shape, tokens);
  const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f};
  const auto spoil = [&](std::vector<float>& values, double chance) {
    const size_t width = values.size() / static_cast<size_t>(tokens);
    for (size_t token = 0; token < static_cast<size_t>(tokens); ++token) {
      if (!random.Chance(chance)) continue;
      values[token * width + static_cast<size_t>(random.Between(
                                 0, static_cast<int64_t>(width) - 1))] = bad[random.Between(0, 3)];
    }
  };
  spoil(sample.q, 0.1);
  spoil(sample.k, 0.2);
  spoil(sample.v, 0.02);
  return sample;
}

// Which not-a-number comes out is not defined; where one does, and every other bit, is.
TEST(Attention, NonFiniteInputsGiveTheSameOnEveryIsa) {
  Random random(6, 0);
  int64_t finite = 0, spoilt = 0;
  for (const ComputeType type : {ComputeType::kBf16, ComputeType::kF32}) {
    for (int trial = 0; trial < 10; ++trial) {
      const Shape shape{.heads = 6, .kv_heads = 2, .dim = 24, .type = type};
      const Sample sample = Spoilt(random, shape, 40 + 20 * trial);
      const std::vector<double> expected = Floats(Whole(shape, sample, Isa::kScalar), type);
      for (const double x : expected) ++(std::isfinite(x) ? finite : spoilt);
      for (const Isa isa : SupportedIsas()) {
        const std::vector<double> actual = Floats(Whole(shape, sample, isa), type);
        for (size_t i = 0; i < expected.size(); ++i) {
          const bool both = std::isnan(actual[i]) && std::isnan(expected[i]);
          ASSERT_TRUE(both || (actual[i] == expected[i] &&
                               std::signbit(actual[i]) == std::signbit(expected[i])))
              << IsaName(isa) << ": " << actual[i] << " for " << expected[i] << " at " << i;
        }
      }
    }
  }
  EXPECT_GT(finite, 1000);
  EXPECT_GT(spoilt, 1000);
}

// A score that is not-a-number counts as -infinity: its position gets no weight.
TEST(Attention, NotANumberInOneKeyLeavesTheOthersTheirWeights) {
  Random random(7, 0);
  for (const ComputeType type : {ComputeType::kBf16, ComputeType::kF32}) {
    const Shape shape{.heads = 1, .kv_heads = 1, .dim = 16, .type = type};
    Sample sample = MakeSample(random, shape, 64);
    for (int64_t token = 0; token < 64; token += 3) {
      sample.k[static_cast<size_t>(token * 16)] = NAN;
      for (int64_t i = 0; i < 16; ++i) sample.v[static_cast<size_t>(token * 16 + i)] = 1e30f;
    }
    for (const Isa isa : SupportedIsas()) {
      const std::vector<double> out = Floats(Whole(shape, sample, isa), type);
      for (size_t i = 16; i < out.size(); ++i) {
        ASSERT_LT(std::abs(out[i]), 10) << IsaName(isa) << " at " << i;
      }
    }
  }
}

TEST(Attention, StaleBytesInUnwrittenSlotsDoNotMatter) {
  Random random(13);
  for (const Shape& shape : kShapes) {
    const Sample sample = MakeSample(random, shape, 83);
    for (const Isa isa : SupportedIsas()) {
      const auto clean = Whole(shape, sample, isa, 0);
      // 0xff: not-a-number in every type. 0x7f: huge numbers, not-a-number in bf16 pairs.
      for (const uint8_t garbage : {0xff, 0x7f, 0x80}) {
        EXPECT_EQ(Whole(shape, sample, isa, garbage), clean)
            << IsaName(isa) << " dim " << shape.dim;
      }
    }
  }
}

// Runs sequences in random parts on random pages beside each other and compares every row with the
// sequence run alone in one step.
void ExpectInvariant(const Shape& shape, uint64_t seed) {
  Random random(seed);
  const Isa isa = SupportedIsas().back();
  std::vector<Sample> samples;
  std::vector<std::vector<std::byte>> expected, got;
  std::vector<std::vector<BlockId>> pages;
  std::vector<int64_t> done;
  std::vector<BlockId> free = Iota(64);
  for (size_t i = free.size() - 1; i > 0; --i) {
    std::swap(free[i], free[static_cast<size_t>(random.Between(0, static_cast<int64_t>(i)))]);
  }
  const int64_t count = random.Between(1, 5);
  for (int64_t i = 0; i < count; ++i) {
    samples.push_back(MakeSample(random, shape, random.Between(1, 190)));
    expected.push_back(Whole(shape, samples.back(), isa));
    pages.emplace_back(free.end() - (samples.back().tokens + 15) / 16, free.end());
    free.resize(free.size() - pages.back().size());
    got.emplace_back();
    done.push_back(0);
  }
  Runner runner(shape, isa, static_cast<int>(random.Between(1, 4)), 64, 0xff);
  while (true) {
    std::vector<Runner::Part> parts;
    std::vector<size_t> who;
    for (size_t i = 0; i < samples.size(); ++i) {
      const int64_t left = samples[i].tokens - done[i];
      if (left == 0 || random.Chance(0.3)) continue;
      const int64_t n = random.Chance(0.5) ? 1 : random.Between(1, left);
      parts.push_back({&samples[i], pages[i], done[i], n});
      who.push_back(i);
    }
    if (parts.empty() && done == [&] {
          std::vector<int64_t> all;
          for (const Sample& s : samples) all.push_back(s.tokens);
          return all;
        }()) {
      break;
    }
    if (parts.empty()) continue;
    const auto results = runner.Step(parts);
    for (size_t i = 0; i < who.size(); ++i) {
      got[who[i]].insert(got[who[i]].end(), results[i].begin(), results[i].end());
      done[who[i]] += parts[i].count;
    }
  }
  for (size_t i = 0; i < samples.size(); ++i) {
    ASSERT_EQ(got[i], expected[i]) << "seed " << seed << " sequence " << i;
  }
}

TEST(Attention, RowDependsOnItsSequenceAlone) {
  for (uint64_t seed = 0; seed < 60; ++seed) ExpectInvariant(kShapes[seed % 7], seed);
}

TEST(KvPages, AreZeroAndKeepTheirPlace) {
  const KvLayout layout{.layers = 3, .kv_heads = 2, .head_dim = 4, .type = ComputeType::kBf16};
  EXPECT_EQ(layout.PageBytes(), 3 * 2 * 2 * 16 * 4 * 2);
  KvPages pages = *KvPages::Create(layout, 5);
  EXPECT_EQ(pages.Head(1, 0, 0) - pages.Head(0, 0, 0), layout.PageBytes());
  EXPECT_EQ(pages.Head(0, 1, 0) - pages.Head(0, 0, 1), layout.HeadBytes());
  for (int64_t i = 0; i < 5 * layout.PageBytes(); ++i) {
    ASSERT_EQ(pages.Head(0, 0, 0)[i], std::byte{0});
  }
  KvPages moved = std::move(pages);
  EXPECT_EQ(moved.pages(), 5);
  EXPECT_EQ(pages.pages(), 0);
}

TEST(KvPages, RefusesMoreThanThereAreNumbersFor) {
  const KvLayout layout{.layers = 1, .kv_heads = 1, .head_dim = 2};
  const auto pages = KvPages::Create(layout, int64_t{1} << 31);
  ASSERT_FALSE(pages.ok());
  EXPECT_EQ(pages.error().code, Code::kResourceExhausted);
  EXPECT_NE(pages.error().message.find("2147483647"), std::string::npos);
}

TEST(KvPages, RefusesMoreThanTheSystemCanReserve) {
  const KvLayout layout{.layers = 100, .kv_heads = 128, .head_dim = 256};
  const auto pages = KvPages::Create(layout, int64_t{1} << 40);
  ASSERT_FALSE(pages.ok());
  EXPECT_EQ(pages.error().code, Code::kResourceExhausted);
}

}  // namespace
}  // namespace divisi
