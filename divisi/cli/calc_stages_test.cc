// Edges of kv-size, kv-transfer, stage-rates and pd-split; their figures are held to the
// specification by calc_stage_values_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "divisi/cli/calc.h"

namespace divisi {
namespace {

using testing::Contains;
using testing::HasSubstr;

using Flags = std::map<std::string, std::string>;

Result<CalcResult> RunTopic(const char* topic, const Flags& flags) {
  static const Catalog catalog = Catalog::BuiltIn();
  return RunCalc(topic, catalog, flags);
}

std::string ErrorOf(const char* topic, const Flags& flags) {
  const auto result = RunTopic(topic, flags);
  return result ? "accepted" : result.error().message;
}

const CalcTable* TableOf(const CalcResult& result, const char* key) {
  for (const CalcTable& table : result.tables) {
    if (table.key == key) return &table;
  }
  return nullptr;
}

TEST(CalcStagesTest, WrongInputsNameTheirFlag) {
  EXPECT_THAT(ErrorOf("kv-size", {{"kv-bytes", "1e300"}}), HasSubstr("--kv-bytes"));
  EXPECT_THAT(ErrorOf("kv-size", {{"state-model", "nope"}}), HasSubstr("--state-model"));
  EXPECT_THAT(ErrorOf("kv-transfer", {{"launches", "0"}}), HasSubstr("--launches"));
  EXPECT_THAT(ErrorOf("kv-transfer", {{"rates", "0"}}), HasSubstr("--rates"));
  EXPECT_THAT(ErrorOf("stage-rates", {{"cards", "A100 80GB SXM,H21"}}), HasSubstr("--cards"));
  EXPECT_THAT(ErrorOf("stage-rates", {{"query-work", "some"}}),
              HasSubstr("--query-work: 'some' is neither 'hidden' nor 'added'"));
  EXPECT_THAT(ErrorOf("pd-split", {{"other-card", "H21"}}), HasSubstr("--other-card"));
  EXPECT_THAT(ErrorOf("pd-split", {{"cached-tokens", "8192"}}), HasSubstr("the last token"));
  EXPECT_THAT(ErrorOf("pd-split", {{"cards", "0"}, {"other-cards", "0"}}), HasSubstr("no cards"));
}

TEST(CalcStagesTest, LargestInputsStayFinite) {
  const auto size =
      RunTopic("kv-size", {{"tokens", "1e9"}, {"copies", "1e9"}, {"model", "deepseek-v3"}});
  ASSERT_TRUE(size);
  for (const CalcFigure& figure : size->figures) EXPECT_GE(figure.value, 0) << figure.key;
  EXPECT_THAT(
      ErrorOf("stage-rates", {{"input-tokens", "1e9"}, {"output-tokens", "1e9"}, {"batch", "1e6"}}),
      HasSubstr("lower decode_batch or the tokens"));
}

TEST(CalcStagesTest, OneOutputTokenHasNoDecode) {
  const auto rates = RunTopic("stage-rates", {{"output-tokens", "1"}});
  ASSERT_TRUE(rates) << rates.error().message;
  EXPECT_EQ(TableOf(*rates, "decode"), nullptr);
  EXPECT_NE(TableOf(*rates, "prefill"), nullptr);
  const auto split = RunTopic("pd-split", {{"output-tokens", "1"}});
  ASSERT_TRUE(split) << split.error().message;
  EXPECT_EQ(TableOf(*split, "grid"), nullptr);
  EXPECT_THAT(split->notes, Contains(HasSubstr("nothing to divide")));
}

TEST(CalcStagesTest, AModelThatDoesNotFitIsSaid) {
  const auto rates = RunTopic("stage-rates", {{"model", "deepseek-v3"}, {"cards", "H200"}});
  ASSERT_TRUE(rates) << rates.error().message;
  EXPECT_EQ(TableOf(*rates, "memory")->rows[0].back(), 0);
  EXPECT_THAT(rates->notes, Contains(HasSubstr("H200: weights and states need")));
}

// Section 9.2.2, exercise 9-2: at a rate equal to the link's a burst stays.
TEST(CalcStagesTest, ALinkThatIsFullNeverDrains) {
  const auto full = RunTopic("kv-transfer", {{"bandwidth", "1207959552B/s"}, {"rates", "1,0.5"}});
  ASSERT_TRUE(full) << full.error().message;
  const CalcTable& stream = *TableOf(*full, "stream");
  EXPECT_TRUE(std::isinf(stream.rows[0].back()));
  EXPECT_DOUBLE_EQ(stream.rows[1].back(), 20);
  EXPECT_THAT(full->notes, Contains(HasSubstr("a queue never shrinks")));
}

TEST(CalcStagesTest, GridsHaveEverySplit) {
  const auto split = RunTopic("pd-split", {{"cards", "3"}, {"other-cards", "2"}});
  ASSERT_TRUE(split) << split.error().message;
  const CalcTable& grid = *TableOf(*split, "grid");
  EXPECT_EQ(grid.rows.size(), 12);
  for (const auto& row : grid.rows) EXPECT_LE(row.back(), split->figures[0].value * (1 + 1e-12));
  const auto many = RunTopic("pd-split", {{"cards", "1000"}, {"other-cards", "1000"}});
  ASSERT_TRUE(many) << many.error().message;
  EXPECT_EQ(TableOf(*many, "grid"), nullptr);
}

}  // namespace
}  // namespace divisi
