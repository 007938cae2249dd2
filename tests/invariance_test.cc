// Placement never changes tokens: a row's logits are the same bits whatever batch it rode in,
// however its prompt was cut, wherever its pages lie, whether a prefix was shared or computed
// again, on any number of threads and any instruction set.
//
// Each case is drawn from its seed: a model, sequences, and a schedule of random steps. Every logit
// row of every sequence is compared bit for bit with that sequence run alone, whole, in order.
// Rerun one case with: invariance_test --gtest_filter='*/SEED'
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "tests/model_runner.h"
#include "tests/random_checkpoint.h"

namespace divisi {
namespace {

// One sequence of a case: what it should give, and how far it is.
struct Subject {
  std::vector<TokenId> tokens;
  std::vector<BlockId> blocks;  // Of all its tokens.
  std::vector<float> expected;  // [S, V]
  int64_t done = 0;
  const Subject* donor = nullptr;  // Whose first pages it shares,
  int64_t shared = 0;              // and how many tokens those hold.
};

RandomShape DrawShape(Random& random) {
  const char* families[] = {"qwen3", "qwen2", "llama"};
  RandomShape shape{.family = families[random.Between(0, 2)]};
  shape.layers = static_cast<int>(random.Between(1, 3));
  shape.kv_heads = static_cast<int>(random.Between(1, 3));
  shape.heads = shape.kv_heads * static_cast<int>(random.Between(1, 4));
  shape.head_dim = static_cast<int>(8 * random.Between(1, 8));
  shape.hidden = shape.family == "qwen2" ? shape.heads * shape.head_dim
                                         : static_cast<int>(2 * random.Between(8, 80));
  shape.intermediate = static_cast<int>(2 * random.Between(8, 120));
  shape.vocab = static_cast<int>(random.Between(17, 300));
  shape.tie = random.Chance(0.5);
  return shape;
}

std::vector<Subject> DrawSubjects(Random& random, int64_t vocab, int64_t longest) {
  std::vector<Subject> subjects(static_cast<size_t>(random.Between(1, 6)));
  for (size_t i = 0; i < subjects.size(); ++i) {
    Subject& subject = subjects[i];
    const int64_t length = random.Chance(0.3) ? random.Between(1, 20) : random.Between(1, longest);
    for (int64_t t = 0; t < length; ++t) {
      subject.tokens.push_back(static_cast<TokenId>(random.Between(0, vocab - 1)));
    }
    if (i == 0 || !random.Chance(0.5)) continue;
    // The same beginning as an earlier one: its whole pages are shared, or computed again.
    const Subject& donor =
        subjects[static_cast<size_t>(random.Between(0, static_cast<int64_t>(i) - 1))];
    const auto common = std::min(donor.tokens.size(), subject.tokens.size());
    std::copy_n(donor.tokens.begin(), common, subject.tokens.begin());
    // At least one token is left to compute.
    const int64_t pages = (static_cast<int64_t>(common) - 1) / kBlockTokens;
    if (pages == 0 || random.Chance(0.3)) continue;
    subject.donor = &donor;
    subject.shared = kBlockTokens * random.Between(1, pages);
  }
  return subjects;
}

// Pages at random places, among them pages whose old content is any bits.
void DrawPages(Random& random, std::vector<Subject>& subjects, KvPages& pages) {
  std::vector<BlockId> free(static_cast<size_t>(pages.pages()));
  for (size_t i = 0; i < free.size(); ++i) free[i] = static_cast<BlockId>(i);
  for (size_t i = free.size() - 1; i > 0; --i) {
    std::swap(free[i], free[static_cast<size_t>(random.Between(0, static_cast<int64_t>(i)))]);
  }
  for (Subject& subject : subjects) {
    const auto shared = static_cast<size_t>(subject.shared / kBlockTokens);
    if (shared > 0) {
      subject.blocks.assign(subject.donor->blocks.begin(),
                            subject.donor->blocks.begin() + static_cast<ptrdiff_t>(shared));
    }
    while (subject.blocks.size() * kBlockTokens < subject.tokens.size()) {
      CHECK(!free.empty());
      subject.blocks.push_back(free.back());
      free.pop_back();
    }
  }
  for (BlockId page = 0; page < pages.pages(); ++page) {
    const int byte = static_cast<int>(random.Between(0, 255));  // 255 makes NaNs.
    std::memset(pages.Head(page, 0, 0), random.Chance(0.3) ? 255 : byte,
                static_cast<size_t>(pages.layout().PageBytes()));
  }
}

// A random step: some of the subjects that can go on, each with a random part of what is left.
struct Step {
  std::vector<Subject*> subjects;
  std::vector<ForwardSequence> batch;
};

Step DrawStep(Random& random, std::vector<Subject>& subjects) {
  Step step;
  while (step.batch.empty()) {
    for (Subject& subject : subjects) {
      const auto length = static_cast<int64_t>(subject.tokens.size());
      if (subject.done == length || random.Chance(0.3)) continue;
      int64_t start = subject.done;
      if (start == 0 && subject.donor != nullptr) {
        if (subject.donor->done < subject.shared) continue;  // The shared pages aren't filled yet.
        start = subject.shared;
      }
      const int64_t count = random.Chance(0.4) ? 1 : random.Between(1, length - start);
      subject.done = start;
      step.subjects.push_back(&subject);
      step.batch.push_back(
          {.tokens = std::span(subject.tokens)
                         .subspan(static_cast<size_t>(start), static_cast<size_t>(count)),
           .start = start,
           .pages = std::span(subject.blocks).first(static_cast<size_t>(PagesFor(start + count))),
           .logits_rows = random.Chance(0.5) ? count : random.Between(0, count)});
    }
  }
  for (size_t i = step.batch.size() - 1; i > 0; --i) {
    const auto other = static_cast<size_t>(random.Between(0, static_cast<int64_t>(i)));
    std::swap(step.batch[i], step.batch[other]);
    std::swap(step.subjects[i], step.subjects[other]);
  }
  return step;
}

void RunStep(const Step& step, ModelRunner& runner) {
  const std::span<const float> logits = runner.model.Forward(step.batch, runner.pages, runner.ops);
  const auto vocab = static_cast<size_t>(runner.vocab());
  size_t row = 0;
  for (size_t i = 0; i < step.batch.size(); ++i) {
    const ForwardSequence& run = step.batch[i];
    Subject& subject = *step.subjects[i];
    const int64_t end = run.start + static_cast<int64_t>(run.tokens.size());
    for (int64_t position = end - run.logits_rows; position < end; ++position, ++row) {
      const float* actual = logits.data() + row * vocab;
      const float* expected = subject.expected.data() + static_cast<size_t>(position) * vocab;
      for (size_t t = 0; t < vocab; ++t) {
        ASSERT_EQ(std::memcmp(actual + t, expected + t, sizeof(float)), 0)
            << "position " << position << " logit " << t << ": " << actual[t] << " for "
            << expected[t] << "; run of " << run.tokens.size() << " from " << run.start << ", "
            << step.batch.size() << " sequences";
      }
    }
    subject.done = end;
  }
  ASSERT_EQ(row * vocab, logits.size());
}

void RunCase(Random& random, const std::filesystem::path& directory, int64_t longest) {
  const ComputeType compute = random.Chance(0.7) ? ComputeType::kBf16 : ComputeType::kF32;
  // The lone runs: one thread, and the instruction set by chance, so that over the cases each is
  // compared with each.
  const std::vector<Isa> isas = SupportedIsas();
  const auto draw_isa = [&] {
    return isas[static_cast<size_t>(random.Between(0, static_cast<int64_t>(isas.size()) - 1))];
  };
  const Isa lone_isa = draw_isa();
  ModelRunner lone(directory, {.compute = compute, .isa = lone_isa, .max_positions = longest});
  std::vector<Subject> subjects = DrawSubjects(random, lone.vocab(), longest);
  for (Subject& subject : subjects) {
    subject.expected = lone.Run(subject.tokens, 0, static_cast<int64_t>(subject.tokens.size()));
    for (const float x : subject.expected) ASSERT_TRUE(std::isfinite(x));
  }
  const ModelRunner::Options options{.compute = compute,
                                     .isa = draw_isa(),
                                     .threads = static_cast<int>(random.Between(1, 3)),
                                     .max_positions = longest,
                                     .pages = 6 * PagesFor(longest) + random.Between(0, 5)};
  SCOPED_TRACE(testing::Message() << (compute == ComputeType::kBf16 ? "bf16 " : "f32 ")
                                  << IsaName(options.isa) << ", " << options.threads
                                  << " threads, against " << IsaName(lone_isa));
  ModelRunner runner(directory, options);
  DrawPages(random, subjects, runner.pages);
  const auto unfinished = [&] {
    return std::ranges::any_of(subjects, [](const Subject& subject) {
      return subject.done < static_cast<int64_t>(subject.tokens.size());
    });
  };
  while (unfinished()) {
    const Step step = DrawStep(random, subjects);
    ASSERT_NO_FATAL_FAILURE(RunStep(step, runner));
  }
}

class Invariance : public testing::TestWithParam<int> {};

TEST_P(Invariance, RandomModel) {
  Random random(static_cast<uint64_t>(GetParam()), 1);
  const TemporaryDirectory directory("invariance");
  const RandomShape shape = DrawShape(random);
  SCOPED_TRACE(RandomConfig(shape).Dump());
  WriteRandomCheckpoint(directory.path(), shape, random.Next64());
  RunCase(random, directory.path(), 120);
}

constexpr int kCases = 30;
INSTANTIATE_TEST_SUITE_P(Seeds, Invariance, testing::Range(0, kCases));

class InvarianceTinyQwen3 : public testing::TestWithParam<int> {};

TEST_P(InvarianceTinyQwen3, LongSequences) {
  Random random(static_cast<uint64_t>(GetParam()), 2);
  RunCase(random, std::filesystem::path(DIVISI_SOURCE_DIR) / "models/tiny-qwen3", 200);
}

// The sizes of a real head: 128 channels, 7 query heads to a KV head, more positions than the score
// chunks and page groups of any kernel; F16 weights in f32 compute.
TEST(InvarianceWide, ManyPositionsOfWideHeads) {
  constexpr int64_t kTokens = 1600, kScored = 1500;
  const TemporaryDirectory directory("invariance_wide");
  const RandomShape shape{.family = "qwen3",
                          .layers = 1,
                          .hidden = 48,
                          .heads = 7,
                          .kv_heads = 1,
                          .head_dim = 128,
                          .intermediate = 64,
                          .vocab = 50,
                          .max_positions = kTokens,
                          .stored = DataType::kF16};
  WriteRandomCheckpoint(directory.path(), shape, 1);
  Random random(3, 3);
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < kTokens; ++i) {
    tokens.push_back(static_cast<TokenId>(random.Between(0, shape.vocab - 1)));
  }
  const std::span<const TokenId> all(tokens);
  const std::vector<Isa> isas = SupportedIsas();
  ModelRunner lone(directory.path(), {.compute = ComputeType::kF32});
  const std::vector<float> expected = lone.Run(all, 0, kTokens);
  for (int threads = 1; threads <= 5; ++threads) {
    const Isa isa = isas[static_cast<size_t>(threads) % isas.size()];
    SCOPED_TRACE(testing::Message() << IsaName(isa) << ", " << threads << " threads");
    // Scalar kernels take seconds for the long part, so they read the fastest ones' pages.
    const Isa first = isa == Isa::kScalar ? isas.back() : isa;
    ModelRunner runner(directory.path(),
                       {.compute = ComputeType::kF32, .isa = first, .threads = threads});
    const int64_t cut = random.Between(1, kScored - 1);
    runner.Run(all.first(static_cast<size_t>(cut)), 0, 0);
    runner.Run(all.subspan(static_cast<size_t>(cut), static_cast<size_t>(kScored - cut)), cut, 0);
    Ops ops(isa, runner.pool);
    const ForwardSequence rest{.tokens = all.subspan(kScored),
                               .start = kScored,
                               .pages = runner.identity,
                               .logits_rows = kTokens - kScored};
    const std::span<const float> logits = runner.model.Forward({&rest, 1}, runner.pages, ops);
    ASSERT_EQ(logits.size(), static_cast<size_t>((kTokens - kScored) * shape.vocab));
    ASSERT_EQ(
        std::memcmp(logits.data(), expected.data() + kScored * shape.vocab, logits.size_bytes()),
        0);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, InvarianceTinyQwen3, testing::Range(0, 4));

}  // namespace
}  // namespace divisi
