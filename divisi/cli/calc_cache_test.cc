// The topics of caches and life cycles under inputs that are wrong, extreme or of other exercises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "divisi/cli/calc.h"

namespace divisi {
namespace {

using testing::HasSubstr;
using Inputs = std::map<std::string, std::string>;

const Catalog& TestCatalog() {
  static const Catalog catalog = Catalog::BuiltIn();
  return catalog;
}

Result<CalcResult> Calculate(const char* topic, const Inputs& inputs = {}) {
  return RunCalc(topic, TestCatalog(), inputs);
}

double Figure(const CalcResult& result, std::string_view key) {
  for (const CalcFigure& figure : result.figures) {
    if (figure.key == key) return figure.value;
  }
  ADD_FAILURE() << "no figure " << key;
  return 0;
}

double Figure(const char* topic, const Inputs& inputs, std::string_view key) {
  const auto result = Calculate(topic, inputs);
  EXPECT_TRUE(result) << result.error().message;
  return result ? Figure(*result, key) : 0;
}

std::string ErrorOf(const char* topic, const Inputs& inputs) {
  const auto result = Calculate(topic, inputs);
  return result ? "accepted" : result.error().message;
}

std::vector<CalcTopic> Topics() {
  std::vector<CalcTopic> topics = CacheTopics();
  for (CalcTopic& topic : LifecycleTopics()) topics.push_back(std::move(topic));
  return topics;
}

// What a stranger might give for an input.
std::vector<std::string> Extremes(const CalcInput& input) {
  const char* unit = "";
  if (input.unit == CalcUnit::kSeconds) unit = "s";
  if (input.unit == CalcUnit::kBytes) unit = "B";
  if (input.unit == CalcUnit::kBytesPerSecond) unit = "B/s";
  std::vector<std::string> texts = {"", "nan", "-1", "inf", "no such thing"};
  for (const char* number : {"0", "1e-300", "1", "2.5", "1e9", "4.6e18", "1e300"}) {
    texts.push_back(number + std::string(unit));
  }
  return texts;
}

// Nothing is a crash, a hang or NaN; what is not there at all, as a pool's capacity, is null too.
void CheckResult(const CalcResult& result, const std::string& what) {
  for (const CalcFigure& figure : result.figures) {
    EXPECT_FALSE(std::isnan(figure.value)) << what << " " << figure.key;
    EXPECT_GE(figure.value, figure.key == "saved" ? -INFINITY : 0) << what << " " << figure.key;
  }
  for (const CalcTable& table : result.tables) {
    for (size_t row = 0; row < table.rows.size(); ++row) {
      ASSERT_EQ(table.rows[row].size(), table.columns.size()) << what;
      if (table.row_names[row] == "remote") continue;
      for (size_t i = 0; i < table.columns.size(); ++i) {
        EXPECT_FALSE(std::isnan(table.rows[row][i])) << what << " " << table.columns[i].key;
      }
    }
  }
  EXPECT_EQ(CalcText(result).find(" -8192 PiB"), std::string::npos) << what;  // An overflow.
}

void CheckInputs(const CalcTopic& topic, const Inputs& inputs) {
  std::string what = topic.name;
  for (const auto& [name, text] : inputs) what += " --" + name + "=" + text;
  const auto result = RunCalc(topic.name, TestCatalog(), inputs);
  if (result) {
    CheckResult(*result, what);
  } else {
    EXPECT_FALSE(result.error().message.empty()) << what;
    EXPECT_NE(result.error().code, Code::kInternal) << what;
  }
}

// In pairs: one infinity is honest, the difference of two is not a number.
TEST(CalcCacheTest, ExtremeInputsGiveFiguresOrAnError) {
  for (const CalcTopic& topic : Topics()) {
    for (const CalcInput& one : topic.inputs) {
      for (const CalcInput& other : topic.inputs) {
        if (other.name < one.name) continue;
        for (const std::string& text : Extremes(one)) {
          for (const std::string& other_text : Extremes(other)) {
            CheckInputs(topic, {{one.name, text}, {other.name, other_text}});
          }
        }
      }
    }
  }
}

TEST(CalcCacheTest, WrongInputsAreNamed) {
  EXPECT_THAT(ErrorOf("kv-reuse", {{"read-bandwidth", "0GB/s"}}), HasSubstr("--read-bandwidth"));
  EXPECT_THAT(ErrorOf("kv-tiers", {{"tokens", "0"}}), HasSubstr("--tokens"));
  EXPECT_THAT(ErrorOf("kv-tiers", {{"disk", "D7-P5521"}}), HasSubstr("--disk"));
  EXPECT_THAT(ErrorOf("kv-tiers", {{"device-room", "much"}}), HasSubstr("--device-room"));
  EXPECT_THAT(ErrorOf("route", {{"available", "1.2"}}), HasSubstr("--available"));
  EXPECT_THAT(ErrorOf("route", {{"quantile", "0"}}), HasSubstr("--quantile"));
  EXPECT_THAT(ErrorOf("route", {{"card", "A200"}}), HasSubstr("--card"));
  EXPECT_THAT(ErrorOf("recover", {{"logged", "2000"}}), HasSubstr("--logged"));
  EXPECT_THAT(ErrorOf("startup", {{"rates", "4,nan"}}), HasSubstr("--rates"));
  EXPECT_THAT(ErrorOf("kv-restart", {{"model", "qwen"}}), HasSubstr("--model"));
}

TEST(CalcCacheTest, WhatNeverHappensIsNullInJson) {
  const auto slow = Calculate("migrate", {{"network", "0.1GB/s"}});
  ASSERT_TRUE(slow);
  EXPECT_THAT(slow->notes.front(), HasSubstr("never catches up"));
  const std::string json = CalcJson("migrate", *slow).Dump();
  EXPECT_THAT(json, HasSubstr(R"("catch_up_seconds":null)"));
  const auto late = Calculate("startup", {{"deadline", "5s"}});
  ASSERT_TRUE(late);
  EXPECT_THAT(CalcJson("startup", *late).Dump(), HasSubstr(R"("required_rate_per_second":null)"));
  EXPECT_THAT(late->notes.front(), HasSubstr("not after the start"));
  EXPECT_TRUE(std::isinf(Figure("kv-reuse", {{"read-bandwidth", "1.25GB/s"}}, "uses_to_pay")));
}

// Exercise 9-7: an interval of 5 minutes; 128 and 512 new tokens; half of the prompts cached.
TEST(CalcCacheTest, ExerciseOfTiers) {
  const auto five_minutes = Calculate("kv-tiers", {{"interval", "5min"}});
  ASSERT_TRUE(five_minutes);
  EXPECT_NEAR(Figure(*five_minutes, "needed"), 423.2e9, 0.1e9);
  EXPECT_THAT(five_minutes->notes.front(), HasSubstr("disk"));  // Above 275 GB of host memory.
  const auto year = Calculate("kv-tiers", {{"interval", "365d"}});
  ASSERT_TRUE(year);
  EXPECT_THAT(year->notes.front(), HasSubstr("No single tier"));
  EXPECT_EQ(Figure("kv-tiers", {{"new-tokens", "128"}}, "buffer_layers"), 25);
  EXPECT_EQ(Figure("kv-tiers", {{"new-tokens", "512"}}, "buffer_layers"), 0);
  EXPECT_NEAR(Figure("kv-tiers", {{"hit", "0.5"}}, "disk_share"),
              2 * Figure("kv-tiers", {}, "disk_share"), 1e-12);
}

// Exercise 9-9: mean and p99 by availability, and a copy in host memory.
TEST(CalcCacheTest, ExerciseOfRoutes) {
  EXPECT_NEAR(Figure("route", {{"available", "0.5"}}, "mean"), 0.539, 5e-4);
  EXPECT_NEAR(Figure("route", {{"available", "0.99"}}, "mean"), 0.1194, 5e-5);
  EXPECT_NEAR(Figure("route", {{"available", "0.9"}}, "quantile"), 0.9672, 5e-5);
  EXPECT_NEAR(Figure("route", {{"available", "0.99"}}, "quantile"), 0.1109, 5e-5);
  const Inputs copies = {{"available", "0.5"}, {"host-copy", "1"}};
  EXPECT_NEAR(Figure("route", copies, "quantile"), 0.1109, 5e-5);
  EXPECT_NEAR(Figure("route", copies, "mean"), 0.1109, 5e-5);
}

TEST(CalcCacheTest, RatesThatAreGivenReplaceThePlanners) {
  const auto result = Calculate("startup", {{"rates", "5,3"}});
  ASSERT_TRUE(result);
  ASSERT_EQ(result->tables.front().rows.size(), 2u);
  EXPECT_DOUBLE_EQ(result->tables.front().rows[0][2], 10 + 35 / 1.5);
  EXPECT_TRUE(std::isinf(result->tables.front().rows[1][2]));
}

}  // namespace
}  // namespace divisi
