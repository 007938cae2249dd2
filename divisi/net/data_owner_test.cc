#include "divisi/net/data_owner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace divisi {
namespace {

constexpr NodeId kSelf{2}, kWriter{1};
constexpr uint64_t kKey = 0x0123456789ABCDEF;

class DataOwnerTest : public testing::Test {
 protected:
  DataOwnerTest()
      : owner_({.self = kSelf}, [this](const PeerMemory&, uint64_t, std::byte*, size_t) {
          ++reads_;
          return false;
        }) {
    owner_.AddRegion(kKey, memory_);
  }
  void Say(uint64_t connection, const DataMessage& message) {
    owner_.Receive(connection, EncodeData(message), true);
  }
  void Join(uint64_t connection, const HelloMessage& hello) {
    owner_.Accepted(connection, Seconds(0));
    Say(connection, hello);
  }
  std::byte* Place(uint64_t connection, int64_t offset, size_t bytes) {
    const WriteMessage write{1, kKey, Bytes(offset), Bytes(static_cast<int64_t>(bytes))};
    return owner_.Place(connection, EncodeData(write), bytes);
  }
  // Of those due now: the connections that are closed, and the answers to Hello.
  std::vector<uint64_t> closed_;
  std::map<uint64_t, DataRefusal> answers_;
  void Take() {
    for (const auto& action : owner_.TakeActions()) {
      if (!action.close.empty()) {
        closed_.push_back(action.connection);
        owner_.Closed(action.connection);
        continue;
      }
      const auto message = DecodeData(action.message);
      if (const auto* welcome = std::get_if<WelcomeMessage>(&*message)) {
        answers_[action.connection] = welcome->refusal;
      }
    }
  }
  bool IsClosed(uint64_t connection) const {
    return std::ranges::find(closed_, connection) != closed_.end();
  }

  int reads_ = 0;
  std::vector<std::byte> memory_ = std::vector<std::byte>(1000);
  DataOwner owner_;
};

TEST_F(DataOwnerTest, AWriterOfTheClusterIsWelcome) {
  Join(1, {kWriter, kSelf, kKey});
  Take();
  EXPECT_EQ(answers_.at(1), DataRefusal::kNone);
  EXPECT_EQ(Place(1, 100, 900), memory_.data() + 100);
  EXPECT_EQ(Place(1, 101, 900), nullptr);
}

// A header that claims bytes which never came is no write, however many it claims.
TEST_F(DataOwnerTest, OnlyBytesThatCameAreReceived) {
  Join(1, {kWriter, kSelf, kKey});
  for (int i = 0; i < 2; ++i) {
    Say(1, WriteMessage{2, kKey, Bytes(0), Bytes(std::numeric_limits<int64_t>::max())});
  }
  EXPECT_EQ(owner_.received().value, 0);
  ASSERT_NE(Place(1, 100, 900), nullptr);
  EXPECT_EQ(owner_.received().value, 0);
  Say(1, WriteMessage{1, kKey, Bytes(100), Bytes(900)});
  Say(1, WriteMessage{1, kKey, Bytes(100), Bytes(900)});  // Once
  EXPECT_EQ(owner_.received().value, 900);
}

TEST_F(DataOwnerTest, AStrangerWhoWritesAtOnceIsCutOff) {
  owner_.Accepted(1, Seconds(0));
  EXPECT_EQ(Place(1, 0, 10), nullptr);
  owner_.Accepted(2, Seconds(0));  // One whose bytes we should fetch, from any process.
  Say(2, WriteMessage{1, kKey, Bytes(0), Bytes(10), 4096});
  owner_.Accepted(3, Seconds(0));
  Say(3, AcksMessage{});
  owner_.Accepted(4, Seconds(0));
  owner_.Receive(4, "GET / HTTP/1.1", true);
  Take();
  for (const uint64_t connection : {1, 2, 3, 4}) EXPECT_TRUE(IsClosed(connection)) << connection;
  EXPECT_EQ(reads_, 0);
}

TEST_F(DataOwnerTest, WhoDoesNotKnowTheKeyChangesNothing) {
  Join(1, {kWriter, kSelf, kKey});
  Take();
  Join(2, {kWriter, kSelf, kKey ^ 1, {77, 88, 99}});  // In the writer's name.
  Join(3, {kWriter, {9}, kKey});
  Take();
  EXPECT_EQ(answers_.at(2), DataRefusal::kUnknownRegion);
  EXPECT_EQ(answers_.at(3), DataRefusal::kOtherProcess);
  EXPECT_EQ(reads_, 1);  // Of the first, and of none that was refused.
  for (const uint64_t stranger : {2, 3}) {
    EXPECT_EQ(Place(stranger, 0, 10), nullptr);
    Say(stranger, HelloMessage{kWriter, kSelf, kKey});
  }
  Take();
  EXPECT_TRUE(IsClosed(2) && IsClosed(3));
  EXPECT_FALSE(IsClosed(1));
  EXPECT_NE(Place(1, 0, 10), nullptr);
}

TEST_F(DataOwnerTest, StrangersAreBounded) {
  Join(1, {kWriter, kSelf, kKey});
  Take();
  for (int64_t i = 0; i < 3 * kMaxUnwelcomed; ++i) {
    owner_.Accepted(static_cast<uint64_t>(2 + i), Seconds(0));
  }
  Take();
  EXPECT_EQ(static_cast<int64_t>(closed_.size()), 2 * kMaxUnwelcomed);
  EXPECT_NE(Place(1, 0, 10), nullptr);
  owner_.CheckTime(Seconds(10));  // Nobody said Hello.
  Take();
  EXPECT_EQ(static_cast<int64_t>(closed_.size()), 3 * kMaxUnwelcomed);
  Join(5000, {{3}, kSelf, kKey});
  Take();
  EXPECT_EQ(answers_.at(5000), DataRefusal::kNone);
}

}  // namespace
}  // namespace divisi
