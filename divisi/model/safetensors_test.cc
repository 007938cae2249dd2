#include "divisi/model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace divisi {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string LengthBytes(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i));
  return bytes;
}

// A file with this header and `data_bytes` bytes of data: 0, 1, 2, ...
std::string Image(std::string_view header, size_t data_bytes) {
  std::string file = LengthBytes(header.size()) + std::string(header);
  for (size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i);
  return file;
}

Result<Safetensors> Parse(std::string_view file) {
  return ParseSafetensors(std::as_bytes(std::span(file)));
}

// The file's refusal. Every one is kDataLoss.
std::string Refusal(std::string_view file) {
  const auto parsed = Parse(file);
  if (parsed) return "accepted";
  EXPECT_STREQ(CodeName(parsed.error().code), "data_loss");
  return parsed.error().message;
}

constexpr std::string_view kTwoTensors =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,2],"data_offsets":[4,12]},)"
    R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}   )";

TEST(SafetensorsTest, ReadsTensorsInAnyOrder) {
  const std::string file = Image(kTwoTensors, 12);
  const Safetensors parsed = Parse(file).value();
  ASSERT_EQ(parsed.tensors.size(), 2u);
  EXPECT_THAT(parsed.other_types, IsEmpty());
  const TensorView& a = parsed.tensors.at("a");
  EXPECT_EQ(a.type, DataType::kF32);
  EXPECT_THAT(a.shape, ElementsAre(1));
  EXPECT_EQ(a.bytes.size(), 4u);
  EXPECT_EQ(a.bytes[3], std::byte{3});
  const TensorView& b = parsed.tensors.at("b");
  EXPECT_EQ(b.type, DataType::kBf16);
  EXPECT_THAT(b.shape, ElementsAre(2, 2));
  EXPECT_EQ(b.bytes[0], std::byte{4});
  EXPECT_EQ(b.bytes.data(), a.bytes.data() + 4);
}

TEST(SafetensorsTest, ReadsScalarsAndEmptyTensors) {
  const std::string file = Image(R"({"empty":{"dtype":"F16","shape":[0,7],"data_offsets":[0,0]},)"
                                 R"("also":{"dtype":"F16","shape":[3,0],"data_offsets":[0,0]},)"
                                 R"("scalar":{"dtype":"F16","shape":[],"data_offsets":[0,2]}})",
                                 2);
  const Safetensors parsed = Parse(file).value();
  EXPECT_THAT(parsed.tensors.at("scalar").shape, IsEmpty());
  EXPECT_EQ(parsed.tensors.at("scalar").bytes.size(), 2u);
  EXPECT_EQ(parsed.tensors.at("empty").bytes.size(), 0u);
  EXPECT_TRUE(Parse(Image("{}", 0))->tensors.empty());
}

TEST(SafetensorsTest, SetsOtherTypesAside) {
  const std::string file = Image(R"({"ids":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
                                 R"("packed":{"dtype":"F4","shape":[4],"data_offsets":[8,10]},)"
                                 R"("w":{"dtype":"BF16","shape":[1],"data_offsets":[10,12]}})",
                                 12);
  const Safetensors parsed = Parse(file).value();
  EXPECT_EQ(parsed.tensors.size(), 1u);
  EXPECT_EQ(parsed.other_types.at("ids"), "I64");
  EXPECT_EQ(parsed.other_types.at("packed"), "F4");
}

TEST(SafetensorsTest, RefusesTruncationAtEveryByte) {
  const std::string file = Image(kTwoTensors, 12);
  ASSERT_TRUE(Parse(file).ok());
  for (size_t length = 0; length < file.size(); ++length) {
    // A copy of just that length, so that a sanitizer sees a read beyond it.
    const std::vector<char> cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_NE(Refusal({cut.data(), cut.size()}), "accepted") << "cut at " << length;
  }
  EXPECT_THAT(Refusal(file.substr(0, 7)), HasSubstr("too few"));
  EXPECT_THAT(Refusal(file.substr(0, 20)), HasSubstr("12 follow"));
  EXPECT_THAT(Refusal(file.substr(0, file.size() - 1)),
              AllOf(HasSubstr("tensor \"b\""), HasSubstr("holds 11 bytes")));
}

TEST(SafetensorsTest, RefusesTrailingBytes) {
  EXPECT_THAT(Refusal(Image(kTwoTensors, 13)), HasSubstr("13 bytes of data"));
}

TEST(SafetensorsTest, RefusesEveryWrongHeaderLength) {
  const std::string file = Image(kTwoTensors, 12);
  for (uint64_t length = 0; length < file.size() + 20; ++length) {
    // Shorter by its padding the header is whole, but then three bytes of data are too many.
    if (length == kTwoTensors.size()) continue;
    const std::string lying = LengthBytes(length) + file.substr(8);
    EXPECT_NE(Refusal(lying), "accepted") << length;
  }
}

TEST(SafetensorsTest, RefusesOversizedHeader) {
  for (const uint64_t length : {uint64_t{100'000'001}, uint64_t{1} << 32, uint64_t{1} << 63,
                                ~uint64_t{0}, ~uint64_t{0} - 7}) {
    EXPECT_THAT(Refusal(LengthBytes(length) + "{}"), HasSubstr("more than the format's"));
  }
}

TEST(SafetensorsTest, RefusesHeadersOfAnotherForm) {
  EXPECT_THAT(Refusal(Image("", 0)), HasSubstr("start with '{'"));
  EXPECT_THAT(Refusal(Image(" {}", 0)), HasSubstr("start with '{'"));
  EXPECT_THAT(Refusal(Image("[]", 0)), HasSubstr("start with '{'"));
  EXPECT_THAT(Refusal(Image("{", 0)), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal(Image("{}{}", 0)), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal(Image(std::string("{}\0", 3), 0)), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal(Image("{\"\xFF\":{}}", 0)), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal(Image(R"({"a":3})", 0)), AllOf(HasSubstr("\"a\""), HasSubstr("object")));
  EXPECT_THAT(Refusal(Image(R"({"__metadata__":[]})", 0)), HasSubstr("__metadata__"));
  EXPECT_THAT(Refusal(Image(R"({"__metadata__":{"n":1}})", 0)), HasSubstr("\"n\" is not a string"));
}

TEST(SafetensorsTest, RefusesRepeatedNames) {
  constexpr std::string_view kEntry = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_THAT(Refusal(Image(Format(R"({{"a":{},"a":{}}})", kEntry, kEntry), 1)),
              AllOf(HasSubstr("tensor \"a\""), HasSubstr("twice")));
  // One spelled with an escape is the same name.
  EXPECT_THAT(Refusal(Image(Format(R"({{"a":{},"\u0061":{}}})", kEntry, kEntry), 1)),
              HasSubstr("twice"));
  EXPECT_THAT(Refusal(Image(R"({"__metadata__":{},"__metadata__":{}})", 0)), HasSubstr("twice"));
  EXPECT_THAT(
      Refusal(Image(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1)),
      HasSubstr("dtype is given twice"));
}

// One tensor "w" of one description, in a file with 8 bytes of data.
struct Lie {
  const char* entry;
  const char* reason;
};

class LyingTensorTest : public testing::TestWithParam<Lie> {};

TEST_P(LyingTensorTest, IsNamedWithTheReason) {
  const std::string file = Image(Format(R"({{"w":{}}})", GetParam().entry), 8);
  EXPECT_THAT(Refusal(file), AllOf(HasSubstr("tensor \"w\""), HasSubstr(GetParam().reason)));
}

INSTANTIATE_TEST_SUITE_P(
    Members, LyingTensorTest,
    testing::Values(
        Lie{R"({"shape":[4],"data_offsets":[0,8]})", "dtype is missing"},
        Lie{R"({"dtype":"BF16","data_offsets":[0,8]})", "shape is missing"},
        Lie{R"({"dtype":"BF16","shape":[4]})", "data_offsets is missing"},
        Lie{R"({"dtype":16,"shape":[4],"data_offsets":[0,8]})", "dtype is not a string"},
        Lie{R"({"dtype":"bf16","shape":[4],"data_offsets":[0,8]})", "\"bf16\" is unknown"},
        Lie{R"({"dtype":"F128","shape":[4],"data_offsets":[0,8]})", "\"F128\" is unknown"},
        Lie{R"({"dtype":"BF16","shape":4,"data_offsets":[0,8]})", "shape is not a list"},
        Lie{R"({"dtype":"BF16","shape":[4.0],"data_offsets":[0,8]})", "integers from 0"},
        Lie{R"({"dtype":"BF16","shape":[-4],"data_offsets":[0,8]})", "integers from 0"},
        Lie{R"({"dtype":"BF16","shape":["4"],"data_offsets":[0,8]})", "integers from 0"},
        Lie{R"({"dtype":"BF16","shape":[18446744073709551615],"data_offsets":[0,8]})",
            "integers from 0"},
        Lie{R"({"dtype":"BF16","shape":[4],"data_offsets":[0]})", "pair of integers"},
        Lie{R"({"dtype":"BF16","shape":[4],"data_offsets":[0,4,8]})", "pair of integers"},
        Lie{R"({"dtype":"BF16","shape":[4],"data_offsets":[0,8.0]})", "pair of integers"},
        Lie{R"({"dtype":"BF16","shape":[4],"data_offsets":{}})", "pair of integers"}));

INSTANTIATE_TEST_SUITE_P(
    Places, LyingTensorTest,
    testing::Values(Lie{R"({"dtype":"BF16","shape":[4],"data_offsets":[-8,0]})", "disordered"},
                    Lie{R"({"dtype":"BF16","shape":[4],"data_offsets":[8,0]})", "disordered"},
                    Lie{R"({"dtype":"BF16","shape":[5],"data_offsets":[0,10]})", "holds 8 bytes"},
                    Lie{R"({"dtype":"BF16","shape":[4],"data_offsets":[0,9223372036854775807]})",
                        "holds 8 bytes"},
                    Lie{R"({"dtype":"BF16","shape":[3],"data_offsets":[0,8]})", "need 6 bytes"},
                    Lie{R"({"dtype":"F32","shape":[4],"data_offsets":[0,8]})", "need 16 bytes"},
                    Lie{R"({"dtype":"BF16","shape":[3],"data_offsets":[2,8]})", "a gap after 0"}));

INSTANTIATE_TEST_SUITE_P(
    Products, LyingTensorTest,
    testing::Values(
        Lie{R"({"dtype":"BF16","shape":[4611686018427387904,4],"data_offsets":[0,8]})",
            "overflows"},
        Lie{R"({"dtype":"BF16","shape":[4294967296,4294967296],"data_offsets":[0,0]})",
            "overflows"},
        Lie{R"({"dtype":"BF16","shape":[9223372036854775807],"data_offsets":[0,8]})", "overflows"},
        Lie{R"({"dtype":"F32","shape":[1152921504606846975,0],"data_offsets":[0,0]})", "overflows"},
        Lie{R"({"dtype":"F4","shape":[3],"data_offsets":[0,2]})", "whole bytes"}));

TEST(SafetensorsTest, RefusesOverlapNamingBoth) {
  EXPECT_THAT(Refusal(Image(R"({"first":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},)"
                            R"("second":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                            8)),
              AllOf(HasSubstr("tensor \"second\""), HasSubstr("inside those of \"first\"")));
  EXPECT_THAT(Refusal(Image(R"({"one":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                            R"("two":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
                            8)),
              HasSubstr("tensor \"two\""));
}

TEST(SafetensorsTest, RefusesGaps) {
  EXPECT_THAT(Refusal(Image(R"({"first":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                            R"("second":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                            8)),
              AllOf(HasSubstr("tensor \"second\""), HasSubstr("gap after 3")));
}

TEST(SafetensorsTest, MessagesStayShortAndPrintable) {
  const std::string name = "\\u001b[31m" + std::string(100000, 'n');
  const std::string message = Refusal(Image(Format(R"({{"{}":{{}}}})", name), 0));
  EXPECT_LT(message.size(), 300u);
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace divisi
