#include "divisi/net/data_message.h"

#include <gtest/gtest.h>

namespace divisi {
namespace {

AcksMessage Acks(size_t count) {
  AcksMessage message;
  for (size_t i = 0; i < count; ++i) message.acks.push_back({i << 40, DataRefusal::kOutOfRange});
  return message;
}

std::vector<DataMessage> Samples() {
  return {HelloMessage{{1}, {~0ULL}, 3, {4, 5, 6}}, WelcomeMessage{DataRefusal::kRefused, true},
          WriteMessage{1, 2, Bytes(3), Bytes(int64_t{1} << 40), ~0ULL}, Acks(0), Acks(kMaxAcks)};
}

TEST(DataMessageTest, RoundTrips) {
  for (const DataMessage& message : Samples()) {
    EXPECT_EQ(DecodeData(EncodeData(message)).value(), message) << message.index();
  }
}

TEST(DataMessageTest, RefusesOtherLengths) {
  for (const DataMessage& message : Samples()) {
    const std::string good = EncodeData(message);
    for (size_t length = 0; length < good.size(); ++length) {
      EXPECT_FALSE(DecodeData(good.substr(0, length)).ok()) << message.index() << " " << length;
    }
    EXPECT_FALSE(DecodeData(good + "x").ok()) << message.index();
  }
}

TEST(DataMessageTest, RefusesUnknownNumbersAndNegativeRanges) {
  std::string welcome = EncodeData(WelcomeMessage{});
  welcome[4] = 99;
  EXPECT_FALSE(DecodeData(welcome).ok());
  EXPECT_FALSE(DecodeData(EncodeData(WriteMessage{1, 2, Bytes(-1), Bytes(1)})).ok());
  EXPECT_FALSE(DecodeData(EncodeData(WriteMessage{1, 2, Bytes(1), Bytes(-1)})).ok());
}

TEST(DataMessageTest, NamesAnotherVersion) {
  std::string hello = EncodeData(HelloMessage{});
  hello[4] = 9;
  const auto message = DecodeData(hello);
  ASSERT_FALSE(message.ok());
  EXPECT_EQ(message.error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace divisi
