// Holds the repository to what a machine can check of its style, and each rule to a sample that
// breaks it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>

#include "divisi/core/file.h"
#include "tests/tidy_rules.h"

namespace divisi {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr size_t kMaxFileBytes = size_t{64} << 20;

// Paths that version control knows; empty without git.
std::vector<std::string> TrackedPaths(const std::string& root) {
  std::vector<std::string> paths;
  const std::string command = "git -C '" + root + "' ls-files 2>/dev/null";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return paths;
  char line[4096];
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    std::string path(line);
    while (!path.empty() && path.back() == '\n') path.pop_back();
    paths.push_back(path);
  }
  pclose(pipe);
  return paths;
}

// Of a tree that came without git: every file but those that builds and packages make.
std::vector<std::string> WalkedPaths(const std::string& root) {
  std::vector<std::string> paths;
  for (auto it = std::filesystem::recursive_directory_iterator(root);
       it != std::filesystem::recursive_directory_iterator(); ++it) {
    const std::string name = it->path().filename().string();
    if (it->is_directory() &&
        (name.starts_with("build") || name == "node_modules" || name.starts_with('.'))) {
      it.disable_recursion_pending();
    } else if (it->is_regular_file()) {
      paths.push_back(std::filesystem::relative(it->path(), root).generic_string());
    }
  }
  return paths;
}

TidyTree ReadTree() {
  const std::string root = DIVISI_SOURCE_DIR;
  auto paths = TrackedPaths(root);
  if (paths.empty()) paths = WalkedPaths(root);
  TidyTree tree;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_regular_file(root + "/" + path)) continue;
    auto text = ReadFile(root + "/" + path, kMaxFileBytes);
    if (text) tree.emplace(path, *std::move(text));
  }
  return tree;
}

class TidyTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { tree_ = new TidyTree(ReadTree()); }
  static void TearDownTestSuite() { delete tree_; }
  static TidyTree* tree_;
};
TidyTree* TidyTest::tree_ = nullptr;

TEST_F(TidyTest, ReadsTheWholeTree) {
  EXPECT_GT(tree_->size(), 100u);
  EXPECT_TRUE(tree_->contains("divisi/core/result.h"));
}

TEST_F(TidyTest, Layers) { EXPECT_THAT(CheckLayers(*tree_), IsEmpty()); }
TEST_F(TidyTest, FileLengths) { EXPECT_THAT(CheckFileLengths(*tree_), IsEmpty()); }
TEST_F(TidyTest, FunctionLengths) { EXPECT_THAT(CheckFunctionLengths(*tree_), IsEmpty()); }
TEST_F(TidyTest, LineLengths) { EXPECT_THAT(CheckLineLengths(*tree_), IsEmpty()); }
TEST_F(TidyTest, BannedCalls) { EXPECT_THAT(CheckBannedCalls(*tree_), IsEmpty()); }
TEST_F(TidyTest, ThirdParty) { EXPECT_THAT(CheckThirdParty(*tree_), IsEmpty()); }
TEST_F(TidyTest, DeadFiles) { EXPECT_THAT(CheckDeadFiles(*tree_), IsEmpty()); }
TEST_F(TidyTest, Preprocessor) { EXPECT_THAT(CheckPreprocessor(*tree_), IsEmpty()); }
TEST_F(TidyTest, LargeFiles) { EXPECT_THAT(CheckLargeFiles(*tree_), IsEmpty()); }
TEST_F(TidyTest, Links) { EXPECT_THAT(CheckLinks(*tree_), IsEmpty()); }
TEST_F(TidyTest, Leftovers) { EXPECT_THAT(CheckLeftovers(*tree_), IsEmpty()); }

std::string Repeated(std::string_view line, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += line;
  return text;
}

TEST(TidyRulesTest, BlanksCommentsAndLiterals) {
  EXPECT_EQ(CodeOnly("a // b\nc /* d\n */ e \"f\\\"g\" 'h' 1'000"),
            "a     \nc     \n    e \"    \" ' ' 1'000");
  EXPECT_EQ(CodeOnly("R\"(a\"b)\" c"), "R\"     \" c");
}

TEST(TidyRulesTest, FindsAnIncludeAgainstTheLayers) {
  EXPECT_THAT(CheckLayers({{"divisi/core/a.cc", "\n#include \"divisi/kv/b.h\"\n"},
                           {"divisi/sim/a.cc", "#include \"divisi/model/b.h\"\n"},
                           {"divisi/serve/a.cc", "#include \"divisi/model/b.h\"\n"},
                           {"divisi/core/a_test.cc", "#include \"divisi/kv/b.h\"\n"},
                           {"divisi/misc/a.cc", ""}}),
              ElementsAre(HasSubstr("divisi/core/a.cc:2: core may not include kv"),
                          HasSubstr("'misc' is no part"), HasSubstr("sim may not include model")));
}

TEST(TidyRulesTest, FindsLongFilesFunctionsAndLines) {
  EXPECT_THAT(CheckFileLengths({{"a.cc", Repeated("x\n", 501)}, {"b.cc", Repeated("x\n", 500)}}),
              ElementsAre(HasSubstr("a.cc:501")));
  const std::string head = "int F(int a) {\n", body = "  a;\n  if (a) {\n  }\n";
  EXPECT_THAT(CheckFunctionLengths({{"a.cc", head + Repeated(body, 24) + "}\n"},
                                    {"b.cc", head + Repeated(body, 22) + "}\n"}}),
              ElementsAre("a.cc:1: a function of 74 lines; name its parts"));
  // What a literal of a test holds does not count.
  const std::string literal = "F(\"" + std::string(101, 'x') + "\");";
  EXPECT_THAT(CheckLineLengths({{"a.cc", std::string(101, 'x')},
                                {"b.cc", Repeated("\xC3\xA9", 100)},
                                {"c.cc", literal},
                                {"c_test.cc", literal}}),
              ElementsAre("a.cc:1: 101 columns; at most 100", "c.cc:1: 107 columns; at most 100"));
}

TEST(TidyRulesTest, FindsBannedCalls) {
  EXPECT_THAT(
      CheckBannedCalls({{"divisi/kv/a.cc", "int x = std::rand();\nassert(x);\nstatic_assert(1);\n"},
                        {"divisi/kv/b.cc", "// assert(x)\nstd::steady_clock::now();\n"},
                        {"divisi/core/clock.cc", "std::steady_clock::now();\n"},
                        {"divisi/kv/a_test.cc", "assert(x);\n"}}),
      ElementsAre("divisi/kv/a.cc:1: std::rand; use a Random (core/random.h)",
                  "divisi/kv/a.cc:2: assert; use CHECK (core/check.h)",
                  "divisi/kv/b.cc:2: steady_clock; use a Clock (core/clock.h)"));
}

TEST(TidyRulesTest, FindsALibraryInTwoPlaces) {
  EXPECT_THAT(CheckThirdParty({{"divisi/model/a.cc", "#include <pcre2.h>\n"},
                               {"divisi/model/b.cc", "#include <pcre2.h>\n"},
                               {"divisi/core/c.h", "#include <simdjson.h>\n"},
                               {"divisi/core/format.h", "#include <fmt/format.h>\n"}}),
              ElementsAre(HasSubstr("divisi/core/c.h:1: simdjson"),
                          HasSubstr("divisi/model/b.cc:1: PCRE2 is included by one source file: "
                                    "divisi/model/a.cc")));
}

TEST(TidyRulesTest, FindsDeadFiles) {
  EXPECT_THAT(CheckDeadFiles({{"divisi/kv/CMakeLists.txt", "a.cc"},
                              {"divisi/kv/a.cc", "#include \"divisi/kv/a.h\"\n"},
                              {"divisi/kv/a.h", ""},
                              {"divisi/kv/b.h", ""},
                              {"divisi/kv/aa.cc", ""},
                              {"tests/CMakeLists.txt", "oracle/c.cc"},
                              {"tests/oracle/c.cc", ""}}),
              ElementsAre("divisi/kv/aa.cc:1: a source that no CMakeLists.txt names",
                          "divisi/kv/b.h:1: a header that nothing includes"));
}

TEST(TidyRulesTest, FindsMacrosAndChoicesInHeaders) {
  EXPECT_THAT(CheckPreprocessor({{"a.h", "#pragma once\n#ifdef __linux__\n#endif\n"},
                                 {"b.h", "// #pragma once\n"},
                                 {"c.cc", "#define MAX(a) a\n#define CHECK(a) a\n"}}),
              ElementsAre(HasSubstr("a.h:2: a choice in a header"), "b.h:1: no #pragma once",
                          "c.cc:1: macro MAX; use a function"));
}

TEST(TidyRulesTest, FindsLargeFilesBrokenLinksAndLeftovers) {
  const std::string large(1 << 21, 'x');
  EXPECT_THAT(CheckLargeFiles({{"docs/a.png", large}, {"models/a.bin", large}}),
              ElementsAre(HasSubstr("docs/a.png:1: 2097152 bytes")));
  EXPECT_THAT(
      CheckLinks({{"docs/a.md", "[x](b.md) [y](../README.md#z)\n[z](https://e.org) [w](..)"},
                  {"README.md", "[x](docs) [y](#here)"}}),
      ElementsAre("docs/a.md:1: a link to b.md, which is not there"));
  EXPECT_THAT(CheckLeftovers({{"a.cc", std::string("// TO") + "DO: x\n"}, {"b.cc", "TODOS\n"}}),
              ElementsAre(HasSubstr("a.cc:1: a leftover")));
}

}  // namespace
}  // namespace divisi
