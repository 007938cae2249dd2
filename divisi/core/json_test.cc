#include "divisi/core/json.h"

#include <gtest/gtest.h>

#include <limits>

namespace divisi {
namespace {

TEST(JsonTest, RoundTripsValuesInOrder) {
  const std::string text =
      R"({"b":[1,2.5,-3,1e+300],"a":{"x":null,"y":true},"s":"q\"\\\n\u0001é"})";
  const Json value = Json::Parse(text).value();
  EXPECT_EQ(value.Dump(), text);
  EXPECT_EQ(value.Find("b")->as_array()[0].as_int(), 1);
  EXPECT_EQ(value.Find("b")->as_array()[1].as_double(), 2.5);
  EXPECT_EQ(value.Find("nothing"), nullptr);
}

TEST(JsonTest, WholeDoubleStaysDouble) {
  EXPECT_EQ(Json(2.0).Dump(), "2.0");
  EXPECT_EQ(Json(std::numeric_limits<double>::infinity()).Dump(), "null");
  EXPECT_EQ(Json(0.1).Dump(), "0.1");
}

TEST(JsonTest, RefusesWhatIsNotJson) {
  for (const char* bad : {"", "{", "[1,]", "{\"a\":1}x", "nul", "\"\xff\"", "01", "[1 2]"}) {
    EXPECT_FALSE(Json::Parse(bad).ok()) << bad;
  }
  EXPECT_FALSE(Json::Parse(std::string(10000, '[')).ok());
  EXPECT_TRUE(Json::Parse(std::string(100, '[') + std::string(100, ']')).ok());
}

TEST(JsonTest, BrokenUtf8BecomesReplacement) {
  EXPECT_EQ(Json("a\xff\xc3").Dump(), "\"a\xEF\xBF\xBD\xEF\xBF\xBD\"");
  EXPECT_EQ(Json("\xe6\x97 a").Dump(), "\"\xEF\xBF\xBD a\"");  // One for a broken sequence.
  EXPECT_EQ(Json("\xed\xa0\x80").Dump(), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

TEST(JsonTest, LastOfRepeatedKeysWins) {
  EXPECT_EQ(Json::Parse(R"({"a":1,"a":2})")->Find("a")->as_int(), 2);
}

TEST(JsonTest, SetLeavesOneOfRepeatedKeys) {
  Json json = *Json::Parse(R"({"a":1,"b":2,"a":3,"a":4})");
  json.Set("a", 5);
  EXPECT_EQ(*json.Find("a"), Json(5));
  EXPECT_EQ(json.Dump(), R"({"a":5,"b":2})");
}

TEST(JsonTest, BeyondInt64BecomesDouble) {
  EXPECT_FALSE(Json::Parse("18446744073709551615")->is_int());
  EXPECT_TRUE(Json::Parse("9223372036854775807")->is_int());
  const Json value = Json::Parse(R"([18446744073709551616,-9223372036854775809,
      9223372036854775807,-9223372036854775808,"18446744073709551616\\\" 99999999999999999999",
      99999999999999999999e1,1.5])")
                         .value();
  EXPECT_EQ(value,
            Json(Json::Array{
                18446744073709551616.0, -9223372036854775809.0, std::numeric_limits<int64_t>::max(),
                std::numeric_limits<int64_t>::min(),
                R"(18446744073709551616\" 99999999999999999999)", 999999999999999999990.0, 1.5}));
  for (const char* bad : {"018446744073709551616", "18446744073709551616-",
                          "[18446744073709551616,]", "18446744073709551616 01"}) {
    EXPECT_FALSE(Json::Parse(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace divisi
