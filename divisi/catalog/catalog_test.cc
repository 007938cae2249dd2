#include "divisi/catalog/catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "divisi/plan/example_models.h"

namespace divisi {
namespace {

using testing::Contains;
using testing::HasSubstr;

TEST(CatalogTest, HasTheChaptersCards) {
  const Catalog catalog = Catalog::BuiltIn();
  const CardSpec& a100 = **catalog.Card("A100 80GB SXM");
  EXPECT_EQ(a100.bf16_peak, FlopsPerSecond(312e12));
  EXPECT_EQ(a100.fp8_peak, FlopsPerSecond(0));
  EXPECT_EQ(a100.memory_bandwidth, BytesPerSecond(2039e9));
  EXPECT_EQ(a100.memory, Bytes(80'000'000'000));
  EXPECT_EQ(a100.nvlink, BytesPerSecond(300e9));
  EXPECT_EQ(a100.pcie, BytesPerSecond(25e9));
  const CardSpec& h20 = **catalog.Card("H20");
  EXPECT_EQ(h20.name, "H20 SXM5 96GB");
  EXPECT_EQ(h20.bf16_peak, FlopsPerSecond(148e12));
  EXPECT_EQ(h20.memory_bandwidth, BytesPerSecond(4096e9));
  const CardSpec& h100 = **catalog.Card("H100 SXM");
  EXPECT_EQ(h100.bf16_peak, FlopsPerSecond(989.4e12));
  EXPECT_EQ(h100.memory_bandwidth, BytesPerSecond(3350e9));
  EXPECT_EQ(h100.nvlink, BytesPerSecond(450e9));
  EXPECT_EQ((*catalog.Card("A100 40GB PCIe"))->memory_bandwidth, BytesPerSecond(1555e9));
  for (const char* name : {"B200", "H200", "RTX 5090", "RTX PRO 6000"}) {
    EXPECT_TRUE(catalog.Card(name).ok()) << name;
  }
}

TEST(CatalogTest, HasTheRestOfTheChaptersHardware) {
  const Catalog catalog = Catalog::BuiltIn();
  const ProcessorSpec& xeon = **catalog.Processor("Xeon Platinum 8452Y");
  EXPECT_EQ(xeon.kernels.at("avx512"), FlopsPerSecond(1.8e12));
  EXPECT_EQ(xeon.kernels.at("amx"), FlopsPerSecond(21.3e12));
  EXPECT_EQ(xeon.local_bandwidth, BytesPerSecond(220e9));
  EXPECT_EQ(xeon.remote_bandwidth, BytesPerSecond(125e9));
  EXPECT_EQ((*catalog.Link("ConnectX-7"))->bandwidth, BytesPerSecond(50e9));
  EXPECT_DOUBLE_EQ((*catalog.Link("200 GbE"))->launch.value, 5e-6);
  EXPECT_EQ((*catalog.Link("50 GbE"))->bandwidth, BytesPerSecond(6.25e9));
  EXPECT_EQ((*catalog.Link("10 GbE"))->bandwidth, BytesPerSecond(1.25e9));
  EXPECT_EQ((*catalog.Link("PCIe 4.0 x16"))->bandwidth, BytesPerSecond(25e9));
  const DiskSpec& disk = **catalog.Disk("D7-P5520");
  EXPECT_EQ(disk.capacity, Bytes(3'840'000'000'000));
  EXPECT_EQ(disk.read, BytesPerSecond(7.1e9));
  EXPECT_EQ(disk.write, BytesPerSecond(4.2e9));
  EXPECT_EQ(disk.writes_per_day * disk.endurance_years, 5);
  const ServerSpec& dgx = **catalog.Server("DGX A100");
  EXPECT_EQ(dgx.card, "A100 80GB SXM");
  EXPECT_EQ(dgx.host_memory, Bytes(int64_t{2} << 40));
  EXPECT_EQ(dgx.cards, 8);
  EXPECT_EQ(dgx.disks, 8);
  EXPECT_EQ((*catalog.Link(dgx.nic))->bandwidth * dgx.nics, BytesPerSecond(200e9));
  EXPECT_TRUE(catalog.Server("HGX H100").ok());
}

TEST(CatalogTest, EveryFigureOfOursHasASource) {
  const Catalog catalog = Catalog::BuiltIn();
  for (const std::string& kind : Catalog::Kinds()) {
    EXPECT_FALSE(catalog.Names(kind).empty()) << kind;
    for (const std::string& name : catalog.Names(kind)) {
      const auto figures = catalog.Figures(kind, name);
      EXPECT_FALSE(figures.empty()) << name;
      for (const CatalogFigure& figure : figures) {
        EXPECT_FALSE(figure.source.empty()) << name << " " << figure.key;
        EXPECT_FALSE(figure.text.empty()) << name << " " << figure.key;
      }
    }
  }
}

// Totals as the models' pages give them: elements of the published checkpoints' tensors, which is
// how the Hugging Face pages count.
struct Published {
  const char* name;
  int64_t parameters;
};
class PublishedModelTest : public testing::TestWithParam<Published> {};

TEST_P(PublishedModelTest, HasThePublishedParameters) {
  const Catalog catalog = Catalog::BuiltIn();
  const auto model = catalog.Model(GetParam().name);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ((*model)->Parameters(), GetParam().parameters);
}

INSTANTIATE_TEST_SUITE_P(
    Dense, PublishedModelTest,
    testing::Values(Published{"Qwen3 0.6B", 596'049'920}, Published{"Qwen3 1.7B", 1'720'574'976},
                    Published{"Qwen3 4B", 4'022'468'096}, Published{"Qwen3 8B", 8'190'735'360},
                    Published{"Qwen3 14B", 14'768'307'200}, Published{"Qwen3 32B", 32'762'123'264},
                    Published{"Llama 3 8B", 8'030'261'248},
                    Published{"Llama 3 70B", 70'553'706'496}));

// DeepSeek V3 and Kimi K2 without the layer for multi-token prediction and without the scales of
// fp8, which the pages' totals add.
INSTANTIATE_TEST_SUITE_P(Experts, PublishedModelTest,
                         testing::Values(Published{"Qwen3 30B-A3B", 30'532'122'624},
                                         Published{"Qwen3 235B-A22B", 235'093'634'560},
                                         Published{"Mixtral 8x22B", 140'620'634'112},
                                         Published{"DeepSeek V2", 235'741'434'880},
                                         Published{"DeepSeek V3", 671'026'419'200},
                                         Published{"DeepSeek R1", 671'026'419'200},
                                         Published{"Kimi K2", 1'026'408'232'448}));

TEST(CatalogTest, ModelsAreNamedByWhatATokenMeets) {
  const Catalog catalog = Catalog::BuiltIn();
  const auto active = [&](const char* name) {
    return static_cast<double>((*catalog.Model(name))->ActiveParameters()) / 1e9;
  };
  EXPECT_NEAR(active("Qwen3 30B-A3B"), 3.3, 0.1);   // "3.3B activated"
  EXPECT_NEAR(active("Qwen3 235B-A22B"), 22, 0.5);  // "22B activated"
  EXPECT_NEAR(active("Mixtral 8x22B"), 39, 0.5);    // "39B active"
  EXPECT_NEAR(active("DeepSeek V2"), 21, 0.5);      // "21B activated"
  EXPECT_NEAR(active("DeepSeek V3"), 37, 0.6);      // "37B activated"
  EXPECT_NEAR(active("Kimi K2"), 32, 1);            // "32B activated"
  EXPECT_EQ((*catalog.Model("DeepSeek R1"))->KvBytesPerToken(DataType::kBf16), Bytes(70272));
  EXPECT_EQ((*catalog.Model("DeepSeek V3"))->quantised->type, "fp8");
}

// Everything that planning counts with.
void ExpectSameShapes(const ModelSpec& read, const ModelSpec& written) {
  EXPECT_EQ(read.family, written.family);
  EXPECT_EQ(read.layers, written.layers);
  EXPECT_EQ(read.hidden, written.hidden);
  EXPECT_EQ(read.heads, written.heads);
  EXPECT_EQ(read.kv_heads, written.kv_heads);
  EXPECT_EQ(read.head_dim, written.head_dim);
  EXPECT_EQ(read.intermediate, written.intermediate);
  EXPECT_EQ(read.vocab, written.vocab);
  ASSERT_EQ(read.mla.has_value(), written.mla.has_value());
  if (read.mla) {
    EXPECT_EQ(read.mla->query_rank, written.mla->query_rank);
    EXPECT_EQ(read.mla->latent_dim, written.mla->latent_dim);
    EXPECT_EQ(read.mla->rope_dim, written.mla->rope_dim);
    EXPECT_EQ(read.mla->nope_dim, written.mla->nope_dim);
    EXPECT_EQ(read.mla->value_dim, written.mla->value_dim);
  }
  ASSERT_EQ(read.moe.has_value(), written.moe.has_value());
  if (read.moe) {
    EXPECT_EQ(read.moe->experts, written.moe->experts);
    EXPECT_EQ(read.moe->experts_per_token, written.moe->experts_per_token);
    EXPECT_EQ(read.moe->expert_intermediate, written.moe->expert_intermediate);
    EXPECT_EQ(read.moe->shared_intermediate, written.moe->shared_intermediate);
    EXPECT_EQ(read.moe->layers, written.moe->layers);
  }
}

TEST(CatalogTest, ModelsHaveTheShapesWrittenOutByHand) {
  const Catalog catalog = Catalog::BuiltIn();
  ExpectSameShapes(**catalog.Model("Qwen3 8B"), ExampleQwen3_8B());
  ExpectSameShapes(**catalog.Model("Qwen3 235B-A22B"), ExampleQwen3_235B());
  ExpectSameShapes(**catalog.Model("DeepSeek V3"), ExampleDeepSeekV3());
}

TEST(CatalogTest, NamesAreReadLoosely) {
  const Catalog catalog = Catalog::BuiltIn();
  for (const char* name : {"a100-80gb-sxm", "A100_80GB_SXM", "a100 80gb", "A100-SXM4-80GB"}) {
    const auto card = catalog.Card(name);
    ASSERT_TRUE(card.ok()) << name;
    EXPECT_EQ((*card)->name, "A100 80GB SXM");
  }
  EXPECT_THAT(catalog.Names("cards"), Contains("H20 SXM5 96GB"));
  EXPECT_THAT(catalog.Names("cards"), testing::Not(Contains("H20")));
  EXPECT_EQ(catalog.Figures("cards", "h20").size(), 3u);
  EXPECT_TRUE(catalog.Names("planets").empty());
}

TEST(CatalogTest, AnUnknownNameGetsTheNearest) {
  const auto card = Catalog::BuiltIn().Card("RTX 5080");
  ASSERT_FALSE(card.ok());
  EXPECT_EQ(card.error().code, Code::kNotFound);
  EXPECT_EQ(card.error().message,
            "there is no card 'RTX 5080' in the catalogue; did you mean RTX 5090?; "
            "'divisi catalog cards' lists them");
}

constexpr std::string_view kUserFile = R"(
cards:
  My Card:
    aliases: [mine]
    source: measured
    bf16: 100 TFLOP/s
    memory_bandwidth: {value: 1 TB/s, source: guessed}
    memory: 24 GB
servers:
  My Box: {card: my-card, cards: 2}
)";

TEST(CatalogTest, AddsAUsersEntries) {
  Catalog catalog = Catalog::BuiltIn();
  const auto added = catalog.Add(kUserFile, "mine.yaml");
  ASSERT_TRUE(added.ok()) << added.error().message;
  EXPECT_EQ((*catalog.Card("mine"))->bf16_peak, FlopsPerSecond(100e12));
  EXPECT_EQ((*catalog.Server("my box"))->cards, 2);
  const auto figures = catalog.Figures("cards", "My Card");
  ASSERT_EQ(figures.size(), 3u);
  EXPECT_EQ(figures[0].source, "measured");
  EXPECT_EQ(figures[1].source, "guessed");
  EXPECT_EQ(figures[1].text, "1 TB/s");
}

TEST(CatalogTest, ReplacesAnEntryWithItsAliases) {
  Catalog catalog = Catalog::BuiltIn();
  ASSERT_TRUE(catalog.Add(kUserFile, "mine.yaml").ok());
  ASSERT_TRUE(
      catalog
          .Add("cards:\n  my-card: {bf16: 1 TFLOP/s, memory_bandwidth: 1 GB/s, memory: 1 GB}\n",
               "b.yaml")
          .ok());
  EXPECT_EQ((*catalog.Card("My Card"))->memory, Bytes(1'000'000'000));
  EXPECT_FALSE(catalog.Card("mine").ok());
  EXPECT_TRUE(catalog.Figures("cards", "mine").empty());
}

struct BadFile {
  const char* yaml;
  const char* message_has;
};
class BadFileTest : public testing::TestWithParam<BadFile> {};

TEST_P(BadFileTest, IsRefusedWithLineAndKey) {
  Catalog catalog = Catalog::BuiltIn();
  const auto added = catalog.Add(GetParam().yaml, "b.yaml");
  ASSERT_FALSE(added.ok());
  EXPECT_EQ(added.error().code, Code::kInvalidArgument);
  EXPECT_THAT(added.error().message, HasSubstr(GetParam().message_has));
  EXPECT_FALSE(catalog.Card("X").ok()) << "nothing is added of a bad file";
}

INSTANTIATE_TEST_SUITE_P(
    All, BadFileTest,
    testing::Values(
        BadFile{"card:\n  X: {}\n", "b.yaml:1: card: unknown key; did you mean cards?"},
        BadFile{"cards:\n  X:\n    bf16: 1 TFLOP/s\n    memory: 80\n    memory_bandwidth: 1 GB/s\n",
                "b.yaml:4: cards.X.memory: '80' has no unit"},
        BadFile{"cards:\n  X:\n    bf16: 1 TFLOP/s\n    memory: 1 GB\n",
                "b.yaml:3: cards.X.memory_bandwidth: is missing"},
        BadFile{"cards:\n  X:\n    bf16: -1 TFLOP/s\n", "cards.X.bf16: expected a computing rate"},
        BadFile{"cards:\n  X:\n    bf16: {valu: 1 TFLOP/s}\n",
                "cards.X.bf16.valu: unknown key; did you mean value?"},
        BadFile{"cards:\n  X: &x {bf16: 1 TFLOP/s, memory_bandwidth: 1 GB/s, memory: 1 GB}\n"
                "  x: *x\n",
                "the name 'x' is another entry's already"},
        BadFile{"servers:\n  S: {card: A100 80GB SXN, cards: 8}\n",
                "b.yaml:2: servers.S.card: there is no 'A100 80GB SXN'; did you mean A100 80GB "
                "SXM?"},
        BadFile{"servers:\n  S: {card: H20, cards: 0}\n", "at least 1"},
        BadFile{"processors:\n  P: {kernels: {}, local_bandwidth: 1 GB/s}\n", "at least one"},
        BadFile{"models:\n  M:\n    config: {model_type: qwen3}\n",
                "b.yaml:3: models.M.config: num_hidden_layers is missing"},
        BadFile{"models:\n  M: {config: 3}\n", "models.M.config: expected the keys"},
        BadFile{"models:\n  M: {}\n", "models.M.config: expected the keys"}));

}  // namespace
}  // namespace divisi
