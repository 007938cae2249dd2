#include "divisi/cli/calc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi {
namespace {

using testing::HasSubstr;

Result<CalcValues> ReadOne(const CalcInput& input, const std::string& text) {
  return CalcValues::Read({input}, Catalog(), {{input.name, text}});
}

std::string ErrorOf(const CalcInput& input, const std::string& text) {
  const auto values = ReadOne(input, text);
  return values ? "accepted" : values.error().message;
}

TEST(CalcTest, ReadsDefaultsAndWhatIsGiven) {
  const std::vector<CalcInput> inputs = {{"bandwidth", CalcUnit::kBytesPerSecond, "25GB/s", ""},
                                         {"tokens", CalcUnit::kCount, "8192", ""}};
  const auto values = CalcValues::Read(inputs, Catalog(), {{"tokens", "16"}});
  ASSERT_TRUE(values) << values.error().message;
  EXPECT_EQ(values->GetBytesPerSecond("bandwidth").value, 25e9);
  EXPECT_EQ(values->Count("tokens"), 16);
}

TEST(CalcTest, RefusesWhatIsNotANumber) {
  const CalcInput count{"tokens", CalcUnit::kCount, "1", ""};
  for (const char* text : {"nan", "inf", "-1", "", "3x", "1e999"}) {
    EXPECT_THAT(ErrorOf(count, text), HasSubstr("--tokens")) << text;
  }
  const CalcInput rate{"bandwidth", CalcUnit::kBytesPerSecond, "1GB/s", ""};
  EXPECT_THAT(ErrorOf(rate, "25"), HasSubstr("--bandwidth"));
}

TEST(CalcTest, LimitsNameTheFlagAndWhatIsExpected) {
  const CalcInput rate{"bandwidth", CalcUnit::kBytesPerSecond, "1GB/s", "", CalcLimit::kPositive};
  EXPECT_THAT(ErrorOf(rate, "0GB/s"), HasSubstr("--bandwidth: 0 is not above 0"));
  const CalcInput share{"hit", CalcUnit::kCount, "0", "", CalcLimit::kShare};
  EXPECT_THAT(ErrorOf(share, "1.5"), HasSubstr("between 0 and 1"));
  EXPECT_EQ(ErrorOf(share, "1"), "accepted");
  const CalcInput tokens{"tokens", CalcUnit::kCount, "1", "", CalcLimit::kOneOrMore};
  for (const char* text : {"0", "1.5", "1e18"}) {
    EXPECT_THAT(ErrorOf(tokens, text), HasSubstr("a whole number from 1 to 1e9")) << text;
  }
  const CalcInput rows{"rows", CalcUnit::kCounts, "1", "", CalcLimit::kWhole};
  EXPECT_EQ(ErrorOf(rows, "0,5,7"), "accepted");
  EXPECT_THAT(ErrorOf(rows, "0,0.5"), HasSubstr("--rows: 0.5 is not a whole number"));
}

TEST(CalcTest, UnknownInputsNameTheNearest) {
  const auto values =
      CalcValues::Read({{"tokens", CalcUnit::kCount, "1", ""}}, Catalog(), {{"token", "2"}});
  ASSERT_FALSE(values);
  EXPECT_THAT(values.error().message, HasSubstr("did you mean --tokens?"));
}

}  // namespace
}  // namespace divisi
