#include "divisi/core/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi {
namespace {

using testing::HasSubstr;

std::string ErrorOf(std::string_view text) {
  const auto node = ParseYaml(text, "a.yaml");
  return node ? "no error" : node.error().message;
}

TEST(YamlTest, KeepsOrderLinesAndKinds) {
  const YamlNode root = ParseYaml(
                            "model: Qwen3 8B  # a comment\n"
                            "cards:\n"
                            "  - {name: \"H20\", count: 4}\n"
                            "  - name: A100\n"
                            "nothing:\n"
                            "also: ~\n",
                            "a.yaml")
                            .value();
  ASSERT_TRUE(root.is_map());
  ASSERT_EQ(root.children.size(), 4u);
  EXPECT_EQ(root.children[0].key, "model");
  EXPECT_EQ(root.children[0].text, "Qwen3 8B");
  EXPECT_EQ(root.children[0].column, 8);
  const YamlNode& cards = *root.Find("cards");
  ASSERT_TRUE(cards.is_list());
  EXPECT_EQ(cards.key_line, 2);
  EXPECT_TRUE(cards.children[0].Find("name")->quoted);
  EXPECT_FALSE(cards.children[0].Find("count")->quoted);
  EXPECT_EQ(cards.children[1].Find("name")->line, 4);
  EXPECT_TRUE(root.Find("nothing")->is_null());
  EXPECT_TRUE(root.Find("also")->is_null());
  EXPECT_EQ(root.Find("absent"), nullptr);
  EXPECT_EQ(cards.Find("name"), nullptr);
}

TEST(YamlTest, AnEmptyDocumentIsNull) {
  EXPECT_TRUE(ParseYaml("", "a.yaml")->is_null());
  EXPECT_TRUE(ParseYaml("# only a comment\n", "a.yaml")->is_null());
}

TEST(YamlTest, AliasesStandForTheirAnchor) {
  const YamlNode root = ParseYaml("a: &x {n: [1, 2]}\nb: *x\n", "a.yaml").value();
  EXPECT_EQ(root.Find("b")->Find("n")->children[1].text, "2");
  EXPECT_EQ(root.Find("b")->line, 1) << "what it stands for lies there";
}

TEST(YamlTest, NamesTheLineOfWhatItRefuses) {
  EXPECT_THAT(ErrorOf("a: 1\nb: [1, 2\n"), HasSubstr("a.yaml:3: not valid YAML"));
  EXPECT_EQ(ErrorOf("a: 1\nb: 2\na: 3\n"), "a.yaml:3: the key 'a' is given twice");
  EXPECT_THAT(ErrorOf("a: 1\n? [x]\n: 2\n"), HasSubstr("a.yaml:2: a key must be a text"));
  EXPECT_THAT(ErrorOf("~: 1\n"), HasSubstr("a.yaml:1: a key must be a text"));
  EXPECT_THAT(ErrorOf("a: !!int 3\n"), HasSubstr("a.yaml:1: the tag"));
  EXPECT_THAT(ErrorOf("a: 1\n---\nb: 2\n"), HasSubstr("second document"));
  EXPECT_THAT(ErrorOf("a: &x [*x]\n"), HasSubstr("a.yaml:1: an alias refers to itself"));
  EXPECT_THAT(ErrorOf("a: *nowhere\n"), HasSubstr("a.yaml:1: not valid YAML"));
  EXPECT_THAT(ErrorOf("a: 1\nb: \xff\n"), HasSubstr("a.yaml:2: not UTF-8"));
  EXPECT_THAT(ErrorOf(std::string("a: 1\n\0b: 2", 11)), HasSubstr("a.yaml:2: a control"));
}

TEST(YamlTest, MessagesStayShort) {
  const std::string name(5000, 'x');
  EXPECT_LT(ErrorOf("%YAML " + name + "\n").size(), 200u);
  EXPECT_LT(ErrorOf("a: *" + name).size(), 200u);
  EXPECT_LT(ErrorOf("a: !!" + name + " 3").size(), 200u);
  EXPECT_LT(ErrorOf(name + ": 1\n" + name + ": 1").size(), 200u);
}

TEST(YamlTest, BoundsDepth) {
  const auto nested = [](int depth) {
    const auto count = static_cast<size_t>(depth);
    return std::string(count, '[') + std::string(count, ']');
  };
  EXPECT_TRUE(ParseYaml(nested(kMaxYamlDepth), "a.yaml").ok());
  EXPECT_THAT(ErrorOf(nested(kMaxYamlDepth + 1)), HasSubstr("nests deeper than 64"));
  EXPECT_THAT(ErrorOf(nested(10000)), HasSubstr("a.yaml:1: nests deeper"));
  // Depth that aliases build up: each level holds the one before twice as deep.
  std::string text = "l0: &l0 [[[[[[[[1]]]]]]]]\n";
  for (int level = 1; level < 12; ++level) {
    text += Format("l{}: &l{} [[[[[[[[*l{}]]]]]]]]\n", level, level, level - 1);
  }
  EXPECT_THAT(ErrorOf(text), HasSubstr("nests deeper"));
}

// A billion laughs: nine aliases of nine aliases of ...
TEST(YamlTest, BoundsWhatAliasesExpandTo) {
  std::string text = "l0: &l0 [ha, ha, ha, ha, ha, ha, ha, ha, ha]\n";
  for (int level = 1; level < 12; ++level) {
    text += Format("l{}: &l{} [", level, level);
    for (int i = 0; i < 9; ++i) text += Format("*l{}{}", level - 1, i < 8 ? ", " : "]\n");
  }
  EXPECT_THAT(ErrorOf(text), HasSubstr("with its aliases expanded"));
}

TEST(YamlTest, BoundsSize) {
  EXPECT_THAT(ErrorOf(std::string(kMaxYamlBytes + 1, ' ')), HasSubstr("larger than 4 MiB"));
}

TEST(YamlTest, BecomesJson) {
  const YamlNode root = ParseYaml(
                            "{a: 1, b: 1e-06, c: '1', d: true, e: null, f: [x, -2], "
                            "g: 1.5.2, h: nan, i: .5}",
                            "a.yaml")
                            .value();
  EXPECT_EQ(YamlToJson(root).Dump(),
            R"({"a":1,"b":1e-06,"c":"1","d":true,"e":null,"f":["x",-2],"g":"1.5.2","h":"nan",)"
            R"("i":0.5})");
}

}  // namespace
}  // namespace divisi
