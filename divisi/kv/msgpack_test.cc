#include "divisi/kv/msgpack.h"

#include <gtest/gtest.h>

#include <limits>

namespace divisi {
namespace {

using Type = MsgpackReader::Type;
using namespace std::string_literals;

TEST(MsgpackTest, NumbersSurviveInTheirShortestForm) {
  struct Case {
    int64_t value;
    size_t bytes;
  };
  const auto kMost = std::numeric_limits<int64_t>::max();
  const auto kLeast = std::numeric_limits<int64_t>::min();
  for (const auto& [value, bytes] : std::initializer_list<Case>{
           {0, 1},          {127, 1},   {128, 2},         {255, 2},         {256, 3},
           {65535, 3},      {65536, 5}, {-1, 1},          {-32, 1},         {-33, 2},
           {-128, 2},       {-129, 3},  {-32768, 3},      {-32769, 5},      {4294967295, 5},
           {4294967296, 9}, {kMost, 9}, {-2147483648, 5}, {-2147483649, 9}, {kLeast, 9}}) {
    MsgpackWriter out;
    out.Int(value);
    const std::string text = out.Take();
    EXPECT_EQ(text.size(), bytes) << value;
    MsgpackReader in(text);
    EXPECT_EQ(in.GetInt(), value);
    EXPECT_TRUE(in.AtEnd() && in.ok());
    MsgpackReader skipped(text);
    EXPECT_EQ(skipped.Skip(), text);
    if (value < 0) {
      EXPECT_EQ(MsgpackReader(text).GetUnsigned(), std::nullopt);
    }
  }
  MsgpackWriter out;
  out.Unsigned(std::numeric_limits<uint64_t>::max());
  const std::string text = out.Take();
  EXPECT_EQ(MsgpackReader(text).GetUnsigned(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(MsgpackReader(text).GetInt(), std::nullopt);
}

TEST(MsgpackTest, TextBytesAndListsSurvive) {
  for (const size_t size : {0, 31, 32, 255, 256, 65535, 65536}) {
    MsgpackWriter out;
    out.Text(std::string(size, 'x'));
    out.Bytes(std::string(size, 'y'));
    out.Float(1.5);
    out.Nil();
    out.Array(size);
    for (size_t i = 0; i < size; ++i) out.Nil();
    out.Map(1);
    out.Int(1);
    out.Int(2);
    const std::string text = out.Take();
    MsgpackReader in(text);
    EXPECT_EQ(in.GetText(), std::string(size, 'x'));
    EXPECT_EQ(in.GetBytes(), std::string(size, 'y'));
    EXPECT_EQ(in.GetFloat(), 1.5);
    EXPECT_TRUE(in.TakeNil());
    EXPECT_EQ(in.GetArray(), size);
    for (size_t i = 0; i < size; ++i) EXPECT_TRUE(in.TakeNil());
    EXPECT_EQ(in.GetMap(), 1u);
    EXPECT_EQ(in.GetInt(), 1);
    EXPECT_EQ(in.GetInt(), 2);
    EXPECT_TRUE(in.AtEnd() && in.ok());
  }
}

TEST(MsgpackTest, ReadsEveryTypeThatOthersWrite) {
  // A float of 4 bytes, extensions of 1 and 3 bytes, true.
  const std::string text = "\x94\xca\x3f\xc0\x00\x00\xd4\x01z\xc7\x03\x01zzz\xc3"s;
  MsgpackReader in(text);
  EXPECT_EQ(in.GetArray(), 4u);
  EXPECT_EQ(in.GetFloat(), 1.5);
  EXPECT_EQ(in.Skip(), "\xd4\x01z"s);
  EXPECT_EQ(in.Next(), Type::kExtension);
  EXPECT_EQ(in.Skip(), "\xc7\x03\x01zzz"s);
  EXPECT_EQ(in.Next(), Type::kBool);
  EXPECT_EQ(in.Skip(), "\xc3"s);
  EXPECT_TRUE(in.AtEnd() && in.ok());
  EXPECT_EQ(MsgpackReader(text).Skip(), text);
}

TEST(MsgpackTest, RefusesWhatIsNotThere) {
  // Lengths beyond the end, a byte that begins nothing, nothing at all.
  for (const std::string& text :
       {"\xdd\xff\xff\xff\xff\x01"s, "\xdf\xff\xff\xff\xff\x01\x02"s, "\xdb\xff\xff\xff\xff"s,
        "\xc6\xff\xff\xff\xffz"s, "\xc9\xff\xff\xff\xff\x01"s, "\xcf\x00"s, "\xcb\x00"s, "\xc1"s,
        "\xd9"s, ""s, "\x92\x01"s, "\x81\x01"s}) {
    MsgpackReader in(text);
    EXPECT_EQ(in.Skip(), std::nullopt) << text.size();
    EXPECT_FALSE(in.ok());
    EXPECT_EQ(in.Next(), Type::kNone);
    MsgpackReader again(text);
    EXPECT_FALSE(again.GetArray() || again.GetMap() || again.GetText() || again.GetBytes());
  }
}

TEST(MsgpackTest, NestingIsBounded) {
  const auto nested = [](size_t depth) { return std::string(depth, '\x91') + '\x01'; };
  EXPECT_TRUE(MsgpackReader(nested(kMsgpackDepth)).Skip().has_value());
  EXPECT_FALSE(MsgpackReader(nested(kMsgpackDepth + 1)).Skip().has_value());
  EXPECT_FALSE(MsgpackReader(nested(1 << 20)).Skip().has_value());
}

}  // namespace
}  // namespace divisi
