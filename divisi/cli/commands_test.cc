#include "divisi/cli/commands.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace divisi {
namespace {

struct Outcome {
  int status = 0;
  std::string error;
};

// Runs `divisi WORDS...` of a program with "group one", and "work NUMBER", which fails at will.
Outcome Try(std::vector<const char*> words) {
  CLI::App app;
  app.name("divisi");
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  CommandGroup(app, "group", "")->add_subcommand("one", "");
  std::string kind;
  CLI::App* work = app.add_subcommand("work", "");
  work->add_option("kind", kind);
  work->callback([&] {
    if (kind == "input") FailCommand({Code::kInvalidArgument, "bad input"});
    if (kind == "system") FailCommand({Code::kInternal, "bad disk"});
  });
  words.insert(words.begin(), "divisi");
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  const int status = RunCommandLine(app, static_cast<int>(words.size()), words.data());
  testing::internal::GetCapturedStdout();
  return {status, testing::internal::GetCapturedStderr()};
}

TEST(CommandsTest, StatusSaysWhoseFaultItIs) {
  EXPECT_EQ(Try({"work"}).status, 0);
  EXPECT_EQ(Try({"work", "--help"}).status, 0);
  EXPECT_EQ(Try({"work", "system"}).status, 1);
  EXPECT_EQ(Try({"work", "input"}).status, 2);
  EXPECT_EQ(Try({"work", "input"}).error, "divisi: bad input\n");
  for (const auto& words : std::vector<std::vector<const char*>>{
           {}, {"group"}, {"work", "--no-such"}, {"work", "a", "b"}, {"group", "one", "x"}}) {
    const Outcome outcome = Try(words);
    EXPECT_EQ(outcome.status, 2) << outcome.error;
    EXPECT_FALSE(outcome.error.empty());
  }
}

TEST(CommandsTest, NamesTheUnknownCommandAndItsNearest) {
  EXPECT_EQ(Try({"wrok"}).error,
            "divisi: there is no command 'divisi wrok'; did you mean work?; see divisi --help\n");
  EXPECT_EQ(Try({"group", "oen"}).error,
            "divisi: there is no command 'divisi group oen'; did you mean one?; see divisi group "
            "--help\n");
  EXPECT_EQ(Try({"group", "oen"}).status, 2);
}

}  // namespace
}  // namespace divisi
