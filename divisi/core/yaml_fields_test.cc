#include "divisi/core/yaml_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string ErrorOf(std::string_view text, const YamlFields::Reader& reader) {
  const auto read = ReadYaml(text, "s.yaml", reader);
  return read ? "no error" : read.error().message;
}

// The error of reading `x: TEXT` as T.
template <typename T>
std::string ErrorOfX(std::string_view text, const YamlWant<T>& want = {}) {
  return ErrorOf(Format("x: {}", text), [&](YamlFields& top) { top.Get<T>("x", want); });
}

TEST(YamlFieldsTest, ReadsEveryType) {
  const auto read = ReadYaml(
      "rate: 3.5\ncount: 1e3\non: true\nname: Qwen3 8B\nmemory: 80 GB\nstart: 10 s\n"
      "link: 200 Gbit/s\npeak: 312 TFLOP/s\ninput: 8192\narrivals: 3.5\nlist: [1, 2]\none: 7\n"
      "zero: 0\n",
      "s.yaml", [](YamlFields& top) {
        EXPECT_EQ(top.Get<double>("rate"), 3.5);
        EXPECT_EQ(top.Get<int64_t>("count"), 1000);
        EXPECT_TRUE(top.Get<bool>("on"));
        EXPECT_EQ(top.Get<std::string>("name"), "Qwen3 8B");
        EXPECT_EQ(top.Get<Bytes>("memory"), Bytes(80'000'000'000));
        EXPECT_EQ(top.Get<Seconds>("start"), Seconds(10));
        EXPECT_EQ(top.Get<BytesPerSecond>("link"), BytesPerSecond(25e9));
        EXPECT_EQ(top.Get<FlopsPerSecond>("peak"), FlopsPerSecond(312e12));
        EXPECT_EQ(top.Get<Tokens>("input"), Tokens(8192));
        EXPECT_EQ(top.Get<PerSecond>("arrivals"), PerSecond(3.5));
        EXPECT_THAT(top.GetList<int64_t>("list"), ElementsAre(1, 2));
        EXPECT_THAT(top.GetList<int64_t>("one"), ElementsAre(7));
        EXPECT_EQ(top.Get<Seconds>("zero"), Seconds(0));
        EXPECT_EQ(top.Find<double>("absent"), std::nullopt);
        EXPECT_EQ(top.Get<double>("absent", {.fallback = 2}), 2);
        EXPECT_TRUE(top.GetList<double>("absent").empty());
        EXPECT_TRUE(top.ok());
      });
  EXPECT_TRUE(read.ok()) << read.error().message;
}

TEST(YamlFieldsTest, SaysWhatWasExpectedAndGot) {
  EXPECT_EQ(ErrorOfX<double>("fast"), "s.yaml:1: x: expected a number, got 'fast'");
  EXPECT_EQ(ErrorOfX<double>("[1]"), "s.yaml:1: x: expected a number, got a list");
  EXPECT_EQ(ErrorOfX<double>("1.2", {.most = 1}),
            "s.yaml:1: x: expected a number, at most 1, got '1.2'");
  EXPECT_EQ(ErrorOfX<int64_t>("2.5"), "s.yaml:1: x: expected a whole number, got '2.5'");
  EXPECT_EQ(ErrorOfX<int64_t>("0", {.least = 1}),
            "s.yaml:1: x: expected a whole number, at least 1, got '0'");
  EXPECT_EQ(ErrorOfX<BytesPerSecond>("0", {.above_zero = true}),
            "s.yaml:1: x: expected a bandwidth with its unit, such as 25 GB/s or 200 Gbit/s, "
            "above 0, got '0'");
  EXPECT_EQ(ErrorOfX<bool>("yes"), "s.yaml:1: x: expected true or false, got 'yes'");
  EXPECT_EQ(ErrorOfX<std::string>("{a: 1}"), "s.yaml:1: x: expected a text, got a map");
  EXPECT_EQ(ErrorOfX<std::string>("tpc", {.one_of = {"rdma", "tcp"}}),
            "s.yaml:1: x: expected one of rdma, tcp, got 'tpc'; did you mean tcp?");
  EXPECT_EQ(ErrorOfX<std::string>("carrier pigeons", {.one_of = {"rdma", "tcp"}}),
            "s.yaml:1: x: expected one of rdma, tcp, got 'carrier pigeons'");
}

TEST(YamlFieldsTest, RefusesWhatIsNoQuantity) {
  for (const char* bad : {"-1", "nan", ".nan", "inf", ".inf", "-.inf", "1e999", "0x10", "''"}) {
    EXPECT_THAT(ErrorOfX<double>(bad), HasSubstr("expected a number")) << bad;
    EXPECT_THAT(ErrorOfX<int64_t>(bad), HasSubstr("expected a whole number")) << bad;
  }
  for (const char* bad : {"-1 GB", "nan GB", "inf GB", "GB", "80 GB/s", "80 parsecs"}) {
    EXPECT_THAT(ErrorOfX<Bytes>(bad), HasSubstr("expected an amount of memory")) << bad;
  }
  EXPECT_THAT(ErrorOfX<Seconds>("1 GB"), HasSubstr("expected a time with its unit"));
  EXPECT_EQ(ErrorOfX<double>("-1", {.least = -2}), "no error");
}

TEST(YamlFieldsTest, SaysThatAUnitIsMissing) {
  EXPECT_EQ(ErrorOfX<Bytes>("80"),
            "s.yaml:1: x: '80' has no unit; expected an amount of memory with its unit, such as "
            "80 GB or 1.125 GiB");
  EXPECT_THAT(ErrorOfX<Seconds>("10"), HasSubstr("'10' has no unit"));
  EXPECT_THAT(ErrorOfX<BytesPerSecond>("25"), HasSubstr("'25' has no unit"));
  EXPECT_THAT(ErrorOfX<FlopsPerSecond>("312e12"), HasSubstr("'312e12' has no unit"));
}

TEST(YamlFieldsTest, NamesTheDottedPath) {
  constexpr std::string_view kText =
      "workload:\n"
      "  mix:\n"
      "    - {input: 1}\n"
      "    - {input: many}\n";
  EXPECT_EQ(ErrorOf(kText,
                    [](YamlFields& top) {
                      top.GetMap("workload", [](YamlFields& workload) {
                        workload.EachOf("mix", [](YamlFields& part) { part.Get<Tokens>("input"); });
                      });
                    }),
            "s.yaml:4: workload.mix[1].input: expected a whole number of tokens, got 'many'");
}

TEST(YamlFieldsTest, ReadsNamedMaps) {
  std::vector<std::string> seen;
  EXPECT_EQ(ErrorOf("cards:\n  B: {n: 1}\n  A: {n: 2}\n",
                    [&](YamlFields& top) {
                      top.EachNamed("cards", [&](const std::string& name, YamlFields& card) {
                        seen.push_back(Format("{}={}", name, card.Get<int64_t>("n")));
                      });
                    }),
            "no error");
  EXPECT_THAT(seen, ElementsAre("B=1", "A=2"));
}

TEST(YamlFieldsTest, ReportsUnknownKeysBeforeMissingOnes) {
  constexpr std::string_view kText = "workload:\n  rate: 1\n  input_token: 8192\n";
  const auto reader = [](YamlFields& top) {
    top.GetMap("workload", [](YamlFields& workload) {
      workload.Get<double>("rate");
      workload.Get<Tokens>("input_tokens");
    });
  };
  EXPECT_EQ(ErrorOf(kText, reader),
            "s.yaml:3: workload.input_token: unknown key; did you mean input_tokens?");
  EXPECT_EQ(ErrorOf("workload:\n  rate: 1\n", reader),
            "s.yaml:2: workload.input_tokens: is missing; expected a whole number of tokens");
  EXPECT_EQ(ErrorOf("a: 1\n", [](YamlFields& top) { top.Ignore({"a"}); }), "no error");
}

TEST(YamlFieldsTest, KeepsTheFirstError) {
  EXPECT_EQ(ErrorOf("a: x\nb: y\n",
                    [](YamlFields& top) {
                      EXPECT_EQ(top.Get<double>("a"), 0);
                      EXPECT_FALSE(top.ok());
                      top.Get<double>("b");
                    }),
            "s.yaml:1: a: expected a number, got 'x'");
}

TEST(YamlFieldsTest, TakesProblemsOfItsReader) {
  EXPECT_EQ(ErrorOf("m:\n  a: 1\n",
                    [](YamlFields& top) {
                      top.GetMap("m", [](YamlFields& map) {
                        map.Ignore({"a"});
                        map.Fail("a", "no such card");
                      });
                    }),
            "s.yaml:2: m.a: no such card");
  EXPECT_EQ(ErrorOf("a: 1\n",
                    [](YamlFields& top) {
                      top.Ignore({"a"});
                      top.FailHere("nothing fits");
                    }),
            "s.yaml:1: nothing fits");
}

TEST(YamlFieldsTest, RefusesWhatIsNoMap) {
  const auto nothing = [](YamlFields&) { FAIL(); };
  EXPECT_EQ(ErrorOf("", nothing), "s.yaml:1: expected a map of keys and values, got nothing");
  EXPECT_EQ(ErrorOf("- 1", nothing), "s.yaml:1: expected a map of keys and values, got a list");
  EXPECT_EQ(ErrorOf("m: 1", [&](YamlFields& top) { top.GetMap("m", nothing); }),
            "s.yaml:1: m: expected a map of keys and values, got '1'");
  EXPECT_EQ(ErrorOf("", [](YamlFields&) {}),
            "s.yaml:1: expected a map of keys and values, got "
            "nothing");
}

}  // namespace
}  // namespace divisi
