#include "divisi/serve/text_assets.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "divisi/core/file.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

const std::filesystem::path kTiny = std::filesystem::path(DIVISI_SOURCE_DIR) / "models/tiny-qwen3";

// A directory with the tiny tokenizer and the given other files.
std::filesystem::path MakeDirectory(const char* name,
                                    const std::vector<std::pair<std::string, std::string>>& files) {
  const auto directory =
      std::filesystem::path(testing::TempDir()) / Format("{}-{}", name, getpid());
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  std::filesystem::copy(kTiny / "tokenizer.json", directory / "tokenizer.json");
  for (const auto& [file, content] : files) {
    EXPECT_TRUE(WriteFileAtomic(directory / file, content).ok());
  }
  return directory;
}

ModelSpec TinySpec() {
  ModelSpec spec;
  spec.vocab = 2048;
  spec.eos_token_ids = {2047};
  return spec;
}

TEST(TextAssetsTest, ReadsTheBundledModel) {
  const TextAssets assets = LoadTextAssets(kTiny, TinySpec()).value();
  ASSERT_TRUE(assets.chat_template.has_value()) << assets.no_template_reason;
  EXPECT_EQ(assets.eos_token_ids, (std::vector<TokenId>{2045, 2047}));
  EXPECT_EQ(*assets.template_variables.Find("eos_token"), Json("<|im_end|>"));
  EXPECT_EQ(assets.template_variables.Find("bos_token"), nullptr);
  EXPECT_EQ(assets.generation_config.Find("top_k")->as_int(), 20);
}

TEST(TextAssetsTest, OnlyTheTokenizerIsNeeded) {
  const TextAssets assets =
      LoadTextAssets(MakeDirectory("text_assets_bare", {}), TinySpec()).value();
  EXPECT_FALSE(assets.chat_template.has_value());
  EXPECT_NE(assets.no_template_reason.find("--chat-template"), std::string::npos);
  EXPECT_TRUE(assets.generation_config.is_null());
  EXPECT_EQ(LoadTextAssets("/nonexistent", TinySpec()).error().code, Code::kNotFound);
}

TEST(TextAssetsTest, TakesTheTemplateFromEachOfItsPlaces) {
  const std::string named =
      R"({"chat_template": [{"name": "tools", "template": "T"}, {"name": "default", "template": "D"}],
          "bos_token": {"content": "<s>"}})";
  const auto directory = MakeDirectory("text_assets_places", {{"tokenizer_config.json", named}});
  const auto render = [&](const std::filesystem::path& file) {
    TextAssets assets = LoadTextAssets(directory, TinySpec(), file).value();
    return assets.chat_template->Render(assets.template_variables, 0).value();
  };
  EXPECT_EQ(render({}), "D");
  ASSERT_TRUE(WriteFileAtomic(directory / "chat_template.jinja", "J {{ bos_token }}").ok());
  EXPECT_EQ(render({}), "J <s>");
  ASSERT_TRUE(WriteFileAtomic(directory / "own.jinja", "own").ok());
  EXPECT_EQ(render(directory / "own.jinja"), "own");
}

TEST(TextAssetsTest, ABrokenTemplateCostsChatAlone) {
  const auto directory = MakeDirectory("text_assets_broken",
                                       {{"tokenizer_config.json", R"({"chat_template": "{{"})"}});
  const TextAssets assets = LoadTextAssets(directory, TinySpec()).value();
  EXPECT_FALSE(assets.chat_template.has_value());
  EXPECT_FALSE(assets.no_template_reason.empty());
  ASSERT_TRUE(WriteFileAtomic(directory / "own.jinja", "{% if %}").ok());
  EXPECT_FALSE(LoadTextAssets(directory, TinySpec(), directory / "own.jinja").ok());
}

TEST(TextAssetsTest, AnUnreadableTemplateIsNotReplacedByAnother) {
  const auto directory = MakeDirectory("text_assets_unreadable",
                                       {{"tokenizer_config.json", R"({"chat_template": "C"})"},
                                        {"chat_template.jinja", std::string((1 << 20) + 1, 'x')}});
  const auto large = LoadTextAssets(directory, TinySpec());
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().code, Code::kOutOfRange);
  EXPECT_NE(large.error().message.find("chat_template.jinja"), std::string::npos);
  std::filesystem::remove(directory / "chat_template.jinja");
  std::filesystem::create_directory(directory / "chat_template.jinja");
  EXPECT_FALSE(LoadTextAssets(directory, TinySpec()).ok());
  std::filesystem::remove(directory / "chat_template.jinja");
  EXPECT_TRUE(LoadTextAssets(directory, TinySpec()).ok());
}

TEST(TextAssetsTest, RefusesWrongFiles) {
  for (const char* content : {"[]", "{", R"({"eos_token_id": 2048})", R"({"eos_token_id": [-1]})",
                              R"({"eos_token_id": "x"})"}) {
    const auto directory =
        MakeDirectory("text_assets_wrong", {{"generation_config.json", content}});
    const auto assets = LoadTextAssets(directory, TinySpec());
    ASSERT_FALSE(assets.ok()) << content;
    EXPECT_NE(assets.error().message.find("generation_config.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace divisi
