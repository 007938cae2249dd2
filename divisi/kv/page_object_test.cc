#include "divisi/kv/page_object.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "divisi/core/random.h"

namespace divisi {
namespace {

using testing::HasSubstr;

PageHeader SomeHeader() {
  PageHeader header;
  header.shape = {.layers = 3, .layer_bytes = 40};
  header.position = 32;
  for (uint8_t i = 0; i < 32; ++i) {
    header.key.bytes[i] = i;
    header.parent.bytes[i] = static_cast<uint8_t>(i + 32);
    header.root.bytes[i] = static_cast<uint8_t>(i + 64);
    header.model.bytes[i] = static_cast<uint8_t>(i + 96);
  }
  return header;
}

std::vector<std::byte> SomePayload(int64_t bytes) {
  Random random(5);
  std::vector<std::byte> payload(static_cast<size_t>(bytes));
  for (std::byte& byte : payload) byte = static_cast<std::byte>(random.Next64() & 0xff);
  return payload;
}

std::vector<std::byte> SomeObject() { return EncodePageObject(SomeHeader(), SomePayload(120)); }

std::vector<std::byte> Mended(std::vector<std::byte> object) {
  const uint64_t sum = PageHeadSum(std::span(object).first(kPageHeadBytes));
  std::memcpy(object.data() + 136, &sum, sizeof sum);
  return object;
}

template <typename T>
std::vector<std::byte> With(size_t at, T value) {
  auto object = SomeObject();
  std::memcpy(object.data() + at, &value, sizeof value);
  return Mended(std::move(object));
}

std::string WhyNot(std::span<const std::byte> object) {
  const auto page = CheckPageObject(object);
  return page ? "" : page.error().message;
}

TEST(PageObjectTest, ReadsWhatItWrote) {
  const auto object = SomeObject();
  EXPECT_EQ(object.size(), kPageHeadBytes + 120);
  const auto page = CheckPageObject(object);
  ASSERT_TRUE(page.ok()) << page.error().message;
  EXPECT_EQ(page->header, SomeHeader());
  EXPECT_EQ(page->sums.size(), 3u);
  EXPECT_EQ(EncodePageHead(*page), std::vector(object.begin(), object.begin() + kPageHeadBytes));
}

// The bytes themselves: who changes these changes the format, and raises the version.
TEST(PageObjectTest, HasTheBytesOfVersionOne) {
  const auto object = SomeObject();
  const auto* bytes = reinterpret_cast<const char*>(object.data());
  EXPECT_EQ(std::string(bytes, 8), "DIVISIKV");
  EXPECT_EQ(std::string(bytes + 8, 8), std::string("\1\0\0\x10\1\1\3\0", 8));
  EXPECT_EQ(std::string(bytes + 16, 8), std::string("\x10\0\0\0\x28\0\0\0", 8));
  EXPECT_EQ(bytes[24], 32);
  EXPECT_EQ(bytes[32], 0);
  EXPECT_EQ(bytes[64], 32);
  EXPECT_EQ(bytes[96], 64);
  EXPECT_EQ(bytes[128], 120);
  EXPECT_EQ(bytes[4064], 96);
  // XXH3-64 as its authors publish it: of nothing.
  EXPECT_EQ(PageSum({}), 0x2d06800538d394c2u);
}

TEST(PageObjectTest, NoFlippedBitPasses) {
  const auto good = SomeObject();
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    auto bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    ASSERT_FALSE(CheckPageObject(bad).ok()) << "bit " << bit;
    // Even where whoever flipped it mended the sum of the head, no layer is taken for another.
    const auto mended = CheckPageObject(Mended(bad));
    if (mended) {
      ASSERT_LT(bit / 8, kPageHeadBytes);
      ASSERT_FALSE(CheckIsAsked(mended->header, SomeHeader()).ok() &&
                   mended->header.parent == SomeHeader().parent &&
                   (bit / 8 < 136 || bit / 8 >= 144))
          << "bit " << bit;
    }
  }
}

TEST(PageObjectTest, NoTruncationPasses) {
  const auto good = SomeObject();
  for (size_t size = 0; size < good.size(); ++size) {
    // A copy of just that size, so that a sanitizer sees a read beyond it.
    const std::vector<std::byte> bad(good.begin(), good.begin() + static_cast<int64_t>(size));
    ASSERT_FALSE(CheckPageObject(bad).ok()) << size;
  }
  auto longer = good;
  longer.push_back(std::byte{0});
  EXPECT_THAT(WhyNot(longer), HasSubstr("too long after its head: 121 bytes, the head says 120"));
}

TEST(PageObjectTest, EachRefusalNamesItsField) {
  EXPECT_THAT(WhyNot({}), HasSubstr("no page object"));
  EXPECT_THAT(WhyNot(With<uint8_t>(0, 'd')), HasSubstr("no page object"));
  EXPECT_THAT(WhyNot(With<uint16_t>(8, 2)), HasSubstr("version 2; this program reads 1"));
  EXPECT_THAT(WhyNot(With<uint16_t>(10, 512)), HasSubstr("bytes of the head: 512"));
  EXPECT_THAT(WhyNot(With<uint8_t>(12, 0)), HasSubstr("kind of state: 0"));
  EXPECT_THAT(WhyNot(With<uint8_t>(12, 4)), HasSubstr("kind of state: 4"));
  EXPECT_THAT(WhyNot(With<uint8_t>(13, 3)), HasSubstr("element type: 3"));
  EXPECT_THAT(WhyNot(With<uint16_t>(14, 0)), HasSubstr("layers: 0"));
  EXPECT_THAT(WhyNot(With<uint16_t>(14, 491)), HasSubstr("layers: 491"));
  EXPECT_THAT(WhyNot(With<uint32_t>(16, 0x80000000u)), HasSubstr("tokens: "));
  EXPECT_THAT(WhyNot(With<uint32_t>(20, 0)), HasSubstr("bytes of a layer: 0"));
  EXPECT_THAT(WhyNot(With<uint32_t>(20, 0xffffffffu)), HasSubstr("bytes of a layer: "));
  EXPECT_THAT(WhyNot(With<uint64_t>(24, ~uint64_t{0})), HasSubstr("position: "));
  EXPECT_THAT(WhyNot(With<uint64_t>(128, 119)), HasSubstr("bytes of the payload: 119"));
  EXPECT_THAT(WhyNot(With<uint64_t>(152, 7)), HasSubstr("sum of layer 1"));
  EXPECT_THAT(WhyNot(With<uint8_t>(168, 1)), HasSubstr("not zero"));
  auto object = SomeObject();
  object[40] ^= std::byte{1};
  EXPECT_THAT(WhyNot(object), HasSubstr("sum of the head"));
  object = SomeObject();
  object.back() ^= std::byte{1};
  EXPECT_THAT(WhyNot(object), HasSubstr("sum of layer 2"));
}

TEST(PageObjectTest, WhatKindOfRefusalTellsWhatToDo) {
  EXPECT_EQ(CheckPageObject({}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(CheckPageObject(With<uint16_t>(8, 9)).error().code, Code::kUnimplemented);
  EXPECT_EQ(CheckPageObject(With<uint8_t>(12, 9)).error().code, Code::kDataLoss);
}

TEST(PageObjectTest, TellsAnotherPageFromTheOneAskedFor) {
  const PageHeader asked = SomeHeader();
  EXPECT_TRUE(CheckIsAsked(asked, asked).ok());
  const auto why = [&](auto change) {
    PageHeader found = asked;
    change(found);
    const auto is = CheckIsAsked(found, asked);
    return is ? "" : is.error().message;
  };
  EXPECT_THAT(why([](auto& h) { h.key.bytes[31] ^= 1; }), HasSubstr("key: "));
  EXPECT_THAT(why([](auto& h) { h.root.bytes[31] ^= 1; }), HasSubstr("root: "));
  EXPECT_THAT(why([](auto& h) { h.model.bytes[0] ^= 1; }), HasSubstr("model: "));
  EXPECT_THAT(why([](auto& h) { h.position = 48; }), HasSubstr("position: 48, asked for 32"));
  EXPECT_THAT(why([](auto& h) { h.shape.type = ElementType::kF32; }), HasSubstr("element type: 2"));
  EXPECT_THAT(why([](auto& h) { h.shape.kind = StateKind::kImage; }), HasSubstr("kind of state"));
  EXPECT_THAT(why([](auto& h) { h.shape.layers = 2; }), HasSubstr("layers: 2, asked for 3"));
  EXPECT_THAT(why([](auto& h) { h.shape.tokens = 8; }), HasSubstr("tokens: 8"));
  EXPECT_THAT(why([](auto& h) { h.shape.layer_bytes = 8; }), HasSubstr("bytes of a layer: 8"));
}

TEST(PageObjectTest, SumsWhatItCopies) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{240}, size_t{16384}, size_t{70001}}) {
    const auto from = SomePayload(static_cast<int64_t>(size));
    std::vector<std::byte> to(size);
    EXPECT_EQ(CopyWithSum(to, from), PageSum(from));
    EXPECT_EQ(to, from);
  }
}

}  // namespace
}  // namespace divisi
