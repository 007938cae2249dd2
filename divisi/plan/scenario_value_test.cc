#include "divisi/plan/scenario_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi {
namespace {

using testing::HasSubstr;

YamlNode Tree() { return ParseYaml("a: {b: 1}\nlist:\n  - {x: 1}\n  - {x: 2}\n", "t").value(); }

const YamlNode& Child(const YamlNode& node, size_t index) { return node.children.at(index); }

TEST(ScenarioValueTest, ReplacesAndAdds) {
  YamlNode tree = Tree();
  ASSERT_TRUE(SetScenarioValue(tree, "a.b=25 GB/s"));
  EXPECT_EQ(Child(Child(tree, 0), 0).text, "25 GB/s");
  ASSERT_TRUE(SetScenarioValue(tree, "list.1.x=[1, 2]"));
  EXPECT_TRUE(Child(Child(Child(tree, 1), 1), 0).is_list());
  ASSERT_TRUE(SetScenarioValue(tree, "new.deep=1"));
  EXPECT_EQ(tree.children.back().key, "new");
}

TEST(ScenarioValueTest, KeepsTheLineInAllOfTheValue) {
  YamlNode tree = Tree();
  ASSERT_TRUE(SetScenarioValue(tree, "list.1={x: [1, {y: 2}]}"));
  const YamlNode& item = Child(Child(tree, 1), 1);
  EXPECT_EQ(item.line, 4);
  EXPECT_EQ(Child(Child(item, 0), 1).line, 4);
}

TEST(ScenarioValueTest, SaysWhatIsWrong) {
  YamlNode tree = Tree();
  const auto message = [&](const char* text) {
    return SetScenarioValue(tree, text).error().message;
  };
  EXPECT_THAT(message("a.b"), HasSubstr("expected KEY=VALUE"));
  EXPECT_THAT(message("=1"), HasSubstr("expected KEY=VALUE"));
  EXPECT_THAT(message("a..b=1"), HasSubstr("a part of the path is empty"));
  EXPECT_THAT(message("list.2.x=1"), HasSubstr("the list has items 0 to 1, not '2'"));
  EXPECT_THAT(message("list.x=1"), HasSubstr("not 'x'"));
  EXPECT_THAT(message("a.b={"), HasSubstr("--set a.b={"));
}

}  // namespace
}  // namespace divisi
