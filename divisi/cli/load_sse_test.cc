#include "divisi/cli/load_sse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "divisi/core/random.h"

namespace divisi {
namespace {

std::vector<std::string> Events(const std::vector<std::string_view>& pieces) {
  SseParser parser;
  std::vector<std::string> events;
  for (const std::string_view piece : pieces) {
    EXPECT_TRUE(parser.Feed(piece, [&](std::string_view data) { events.emplace_back(data); }).ok());
  }
  return events;
}

TEST(SseParser, ReadsDataOfEachEvent) {
  EXPECT_EQ(Events({"data: a\n\ndata: b\n\n"}), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(Events({"data:a\r\n\r\ndata: [DONE]\r\r"}), (std::vector<std::string>{"a", "[DONE]"}));
}

TEST(SseParser, JoinsDataLinesAndSkipsTheRest) {
  EXPECT_EQ(Events({": ping\nevent: x\ndata: a\nid: 7\ndata\ndata:  b\nretry: 3\n\n"}),
            (std::vector<std::string>{"a\n\n b"}));
  EXPECT_EQ(Events({"\n\n\nevent: x\n\n: only a comment\n\n"}), std::vector<std::string>{});
  EXPECT_EQ(Events({"data\n\n"}), std::vector<std::string>{""});
}

TEST(SseParser, AnEventWithoutItsEmptyLineIsNotDelivered) {
  EXPECT_EQ(Events({"data: a\n"}), std::vector<std::string>{});
}

TEST(SseParser, AnySplitGivesTheSameEvents) {
  const std::string text =
      "data: {\"x\": 1}\r\n\r\n: comment\ndata: \xC3\xA9t\xC3\xA9\ndata: two\n\ndata: "
      "z\r\rdata:\n\n"
      "data: [DONE]\n\n";
  const auto whole = Events({text});
  ASSERT_EQ(whole.size(), 5u);
  Random random(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string_view> pieces;
    for (size_t at = 0; at < text.size();) {
      const auto size = static_cast<size_t>(random.Between(0, 1 + round % 17));
      pieces.push_back(std::string_view(text).substr(at, size));
      at += size;
    }
    EXPECT_EQ(Events(pieces), whole) << "round " << round;
  }
}

TEST(SseParser, RefusesAnEndlessEvent) {
  for (const bool one_line : {true, false}) {
    SseParser parser;
    const std::string piece =
        one_line ? std::string(1 << 16, 'x') : "data: " + std::string(1 << 16, 'x') + "\n";
    bool refused = false;
    for (size_t fed = 0; fed <= SseParser::kMaxEventBytes && !refused; fed += 1 << 16) {
      refused = !parser.Feed(piece, [](std::string_view) { FAIL(); }).ok();
    }
    EXPECT_TRUE(refused);
  }
}

}  // namespace
}  // namespace divisi
