#include "divisi/model/synth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>

#include "divisi/core/file.h"
#include "divisi/core/format.h"
#include "divisi/model/checkpoint.h"
#include "divisi/model/synth_tokenizer.h"
#include "divisi/model/tokenizer.h"

namespace divisi {
namespace {

using testing::ElementsAre;

ModelSpec SmallSpec() {
  return ParseModelSpec(Json::Parse(R"({"model_type": "llama", "hidden_size": 64,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "intermediate_size": 96, "vocab_size": 300, "max_position_embeddings": 128,
      "attention_bias": true, "mlp_bias": true})")
                            .value())
      .value();
}

float ElementAt(DataType type, std::span<const std::byte> bytes, size_t i) {
  if (type == DataType::kF32) {
    float value;
    std::memcpy(&value, bytes.data() + 4 * i, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes.data() + 2 * i, 2);
  if (type == DataType::kBf16) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  const int exponent = (bits >> 10) & 0x1F;
  const float magnitude = exponent == 0 ? std::ldexp(bits & 0x3FF, -24)
                                        : std::ldexp((bits & 0x3FF) | 0x400, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

std::vector<float> Drawn(const RandomTensor& tensor, std::string_view name, int64_t first,
                         size_t count, uint64_t seed = 1) {
  std::vector<std::byte> bytes(count * static_cast<size_t>(ElementBytes(tensor.type())));
  tensor.Fill(seed, name, first, bytes);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = ElementAt(tensor.type(), bytes, i);
  return values;
}

class RandomTensorTest : public testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(Types, RandomTensorTest,
                         testing::Values(DataType::kBf16, DataType::kF16, DataType::kF32),
                         [](const auto& type) { return DataTypeName(type.param); });

TEST_P(RandomTensorTest, IsNormal) {
  const RandomTensor tensor({.mean = 0.5f, .deviation = 0.25f}, GetParam());
  constexpr size_t kCount = 200000;
  double sum = 0, squares = 0, cubes = 0, fourths = 0;
  int within_one = 0;
  for (const float value : Drawn(tensor, "w", 0, kCount)) {
    const double z = (value - 0.5) / 0.25;
    sum += z;
    squares += z * z;
    cubes += z * z * z;
    fourths += z * z * z * z;
    within_one += std::abs(z) < 1 ? 1 : 0;
  }
  // Five standard errors of each moment: sqrt(1, 2, 15, 96) / sqrt(n) * 5, and rounding to bf16.
  EXPECT_NEAR(sum / kCount, 0, 0.012);
  EXPECT_NEAR(squares / kCount, 1, 0.017);
  EXPECT_NEAR(cubes / kCount, 0, 0.045);
  EXPECT_NEAR(fourths / kCount, 3, 0.12);
  EXPECT_NEAR(within_one / double{kCount}, 0.6827, 0.006);
}

TEST_P(RandomTensorTest, ElementsDependOnTheirIndexAlone) {
  const RandomTensor tensor({.mean = 0, .deviation = 1}, GetParam());
  const auto whole = Drawn(tensor, "w", 0, 1000);
  for (const int64_t first : {0, 8, 504}) {
    const auto part = Drawn(tensor, "w", first, 77);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first)) << first;
  }
  EXPECT_NE(Drawn(tensor, "w", 0, 100, 2), Drawn(tensor, "w", 0, 100, 1));
  EXPECT_NE(Drawn(tensor, "w", 0, 100, uint64_t{1} << 32), Drawn(tensor, "w", 0, 100, 0));
  EXPECT_NE(Drawn(tensor, "v", 0, 100), Drawn(tensor, "w", 0, 100));
}

TEST(RandomTensorTest, TypesRoundTheSameDraws) {
  const RandomTensor::Distribution distribution = {.mean = 0, .deviation = 0.02f};
  const auto exact = Drawn({distribution, DataType::kF32}, "w", 0, 4096);
  const auto half = Drawn({distribution, DataType::kF16}, "w", 0, 4096);
  const auto brain = Drawn({distribution, DataType::kBf16}, "w", 0, 4096);
  for (size_t i = 0; i < exact.size(); ++i) {
    // Half a unit of the last place, relative to the value: 2^-11 and 2^-8; 2^-25 among subnormals.
    EXPECT_NEAR(half[i], exact[i], std::max(std::abs(exact[i]) * 0x1p-11f, 0x1p-25f));
    EXPECT_NEAR(brain[i], exact[i], std::abs(exact[i]) * 0x1p-8f);
  }
}

class SynthWeightsTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(testing::TempDir()) / Format("synth_test-{}", getpid());
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  // The tensors written by `threads` threads into a directory of that name.
  std::map<std::string, std::string> Written(std::string_view name, int threads,
                                             const SynthOptions& options) {
    const auto directory = directory_ / name;
    std::filesystem::create_directories(directory);
    EXPECT_TRUE(WriteFileAtomic(directory / "config.json",
                                R"({"model_type": "llama", "hidden_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 96, "vocab_size": 300, "max_position_embeddings": 128,
        "attention_bias": true, "mlp_bias": true})")
                    .ok());
    ThreadPool pool(threads);
    EXPECT_TRUE(WriteSynthWeights(SmallSpec(), directory, options, pool).ok());
    const Checkpoint checkpoint = Checkpoint::Open(directory).value();
    for (const ModelTensor& tensor : ModelTensors(checkpoint.spec())) {
      EXPECT_TRUE(checkpoint.Get(tensor.name, tensor.shape).ok()) << tensor.name;
    }
    std::map<std::string, std::string> tensors;
    for (const auto& [tensor, view] : checkpoint.tensors()) {
      EXPECT_EQ(view.type, options.type);
      tensors[tensor].assign(reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size());
    }
    return tensors;
  }

  std::filesystem::path directory_;
};

TEST_F(SynthWeightsTest, ThreadsAndShardsChangeNothing) {
  const auto one = Written("one", 1, {.seed = 7});
  EXPECT_EQ(Written("three", 3, {.seed = 7}), one);
  EXPECT_EQ(Written("shards", 2, {.seed = 7, .most_shard_bytes = Bytes(20000)}), one);
  EXPECT_TRUE(std::filesystem::exists(directory_ / "shards" / "model.safetensors.index.json"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "shards" / "model.safetensors"));
  EXPECT_NE(Written("seed", 2, {.seed = 8}), one);
}

TEST_F(SynthWeightsTest, NormsAreNearOneAndAllIsFinite) {
  for (const DataType type : {DataType::kF16, DataType::kF32}) {
    for (const auto& [name, text] : Written(DataTypeName(type), 2, {.seed = 3, .type = type})) {
      const auto bytes = std::as_bytes(std::span(text));
      const bool norm = name.ends_with("norm.weight");
      for (size_t i = 0; i < bytes.size() / static_cast<size_t>(ElementBytes(type)); ++i) {
        ASSERT_NEAR(ElementAt(type, bytes, i), norm ? 1 : 0, norm ? 0.25 : 0.1) << name;
      }
    }
  }
}

TEST_F(SynthWeightsTest, ReportsProgressToTheEnd) {
  Bytes last, all;
  SynthOptions options;
  options.progress = [&](Bytes done, Bytes total) {
    EXPECT_GT(done, last);
    last = done;
    all = total;
  };
  Written("progress", 1, options);
  EXPECT_EQ(last, all);
  EXPECT_EQ(all, Bytes(2 * SmallSpec().Parameters()));
}

TEST_F(SynthWeightsTest, SaysWhereItCannotWrite) {
  ThreadPool pool(1);
  const auto written = WriteSynthWeights(SmallSpec(), directory_ / "no", {}, pool);
  ASSERT_FALSE(written.ok());
  EXPECT_NE(written.error().message.find((directory_ / "no").string()), std::string::npos);
}

TEST(ModelTensorsTest, ElementsAddUpToParameters) {
  for (const char* changed : {"qwen3", "qwen2", "llama"}) {
    ModelSpec spec = SmallSpec();
    spec.qk_norm = std::string_view(changed) == "qwen3";
    spec.output_bias = spec.mlp_bias = std::string_view(changed) == "llama";
    spec.tie_embeddings = std::string_view(changed) == "qwen2";
    int64_t elements = 0;
    for (const ModelTensor& tensor : ModelTensors(spec)) elements += Elements(tensor.shape);
    EXPECT_EQ(elements, spec.Parameters()) << changed;
  }
}

class BundledModelTest : public testing::TestWithParam<const char*> {};

TEST_P(BundledModelTest, ModelTensorsNamesItsTensors) {
  const auto checkpoint =
      Checkpoint::Open(std::string(DIVISI_SOURCE_DIR "/models/") + GetParam()).value();
  const auto tensors = ModelTensors(checkpoint.spec());
  EXPECT_EQ(tensors.size(), checkpoint.tensors().size());
  int64_t elements = 0;
  for (const ModelTensor& tensor : tensors) {
    EXPECT_TRUE(checkpoint.Get(tensor.name, tensor.shape).ok()) << tensor.name;
    elements += Elements(tensor.shape);
  }
  EXPECT_EQ(elements, checkpoint.spec().Parameters());
}

INSTANTIATE_TEST_SUITE_P(All, BundledModelTest,
                         testing::Values("tiny-qwen3", "tiny-qwen3-moe", "tiny-deepseek-v3"));

TEST(SynthTokenizerTest, EveryByteIsAToken) {
  const SynthTokens tokens = SynthTokensOf(SmallSpec()).value();
  EXPECT_EQ(tokens.im_end, 299);
  const auto tokenizer = Tokenizer::Parse(SynthTokenizer(tokens).Dump()).value();
  EXPECT_EQ(tokenizer.vocab_size(), 300);
  EXPECT_THAT(tokenizer.Encode("<|im_start|>a \n<|im_end|>", false),
              ElementsAre(298, 'a' - 0x21, 220, 198, 299));
  std::string bytes;
  for (int id = 0; id < 256; ++id) bytes += tokenizer.TokenBytes(id);
  std::ranges::sort(bytes, {}, [](char c) { return static_cast<unsigned char>(c); });
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(bytes[byte], static_cast<char>(byte));
  const std::string text = "Tea at 5 o'clock?\n\xC3\xA9\xE6\xBC\xA2\xF0\x9F\x99\x82\t<tag>";
  EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(text, false), true), text);
}

TEST(SynthTokenizerTest, AgreesWithTheBundledOneOnBytes) {
  const auto bundled = Tokenizer::Load(DIVISI_SOURCE_DIR "/models/tiny-qwen3").value();
  const auto tokenizer =
      Tokenizer::Parse(SynthTokenizer(SynthTokensOf(SmallSpec()).value()).Dump()).value();
  for (int id = 0; id < 256; ++id)
    EXPECT_EQ(tokenizer.TokenBytes(id), bundled.TokenBytes(id)) << id;
}

TEST(SynthTokenizerTest, FillersAreDistinctHarmlessText) {
  ModelSpec spec = SmallSpec();
  spec.vocab = 30000;
  const auto tokenizer =
      Tokenizer::Parse(SynthTokenizer(SynthTokensOf(spec).value()).Dump()).value();
  std::set<std::string> texts;
  for (int id = 256; id < spec.vocab - 3; ++id) {
    const std::string text(tokenizer.TokenBytes(id));
    EXPECT_TRUE(texts.insert(text).second) << id;
    EXPECT_EQ(text[0], ' ');
    EXPECT_TRUE(std::ranges::all_of(text.substr(1), [](char c) { return c >= 'a' && c <= 'z'; }));
  }
}

TEST(SynthTokenizerTest, RefusesATooSmallVocabulary) {
  ModelSpec spec = SmallSpec();
  spec.vocab = 258;
  EXPECT_EQ(SynthTokensOf(spec).error().code, Code::kOutOfRange);
  spec.vocab = 259;
  EXPECT_TRUE(SynthTokensOf(spec).ok());
}

}  // namespace
}  // namespace divisi
