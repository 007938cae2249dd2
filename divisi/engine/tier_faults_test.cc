// Disks that are slow, full, or do not answer, under the real engine and model: requests take no
// longer than computing and a bound, their tokens are right, and the counts agree.
#include <gmock/gmock.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "divisi/engine/tier_process_fixture.h"

namespace divisi {
namespace {

// A disk that a test holds up.
class TroubledCalls final : public DiskCalls {
 public:
  int64_t Read(int fd, std::span<std::byte> to, int64_t at) override {
    ++reads_;
    std::unique_lock lock(mutex_);
    if (read_takes_.count() > 0) released_.wait_for(lock, read_takes_, [&] { return open_; });
    if (hangs_) released_.wait(lock, [&] { return open_; });
    lock.unlock();
    return DiskCalls::Read(fd, to, at);
  }
  int64_t Write(int fd, std::span<const std::byte> from, int64_t at) override {
    const int64_t size = static_cast<int64_t>(from.size());
    if (written_ + size > room_) {
      ++refused_;
      errno = ENOSPC;
      return -1;
    }
    written_ += size;
    return DiskCalls::Write(fd, from, at);
  }

  void SlowReads(std::chrono::milliseconds each) { read_takes_ = each; }
  void Hang() { hangs_ = true; }
  void Release() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    released_.notify_all();
  }
  void RoomFor(int64_t bytes) { room_ = bytes; }
  void MakeRoom() { room_ = INT64_MAX; }
  int64_t reads() const { return reads_; }
  int64_t refused() const { return refused_; }

 private:
  std::mutex mutex_;
  std::condition_variable released_;
  bool open_ = false;
  std::atomic<bool> hangs_ = false;
  std::chrono::milliseconds read_takes_{0};
  std::atomic<int64_t> room_ = INT64_MAX, written_ = 0, refused_ = 0, reads_ = 0;
};

class TierFaultsTest : public TierProcessTest {
 protected:
  ~TierFaultsTest() override { calls_->Release(); }

  // Leaves the prompts' pages on the disk, by a process that ends.
  void Fill(const std::vector<std::vector<TokenId>>& prompts) {
    Process process({.host = kHost, .disk = directory_});
    for (const auto& prompt : prompts) process.Run(prompt);
    process.Settle();
  }

  const std::shared_ptr<TroubledCalls> calls_ = std::make_shared<TroubledCalls>();
};

Seconds Since(std::chrono::steady_clock::time_point start) {
  return Seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

TEST_F(TierFaultsTest, ASlowDiskIsGivenUpAndThenLeftAlone) {
  std::vector<std::vector<TokenId>> prompts;
  for (TokenId i = 0; i < 6; ++i)
    prompts.push_back(SomeTokens(150, static_cast<TokenId>(11 + 300 * i)));
  Fill(prompts);
  Process process({.hurried = true, .host = kHost, .disk = directory_, .calls = calls_});
  calls_->SlowReads(std::chrono::seconds(1));  // Of 150 tokens computing takes some 20 ms.
  for (const auto& prompt : prompts) {
    const auto start = std::chrono::steady_clock::now();
    const Answer answer = process.Run(prompt);
    // Nine pages would take 9 s and more. What was not begun yet is not waited for.
    EXPECT_LT(Since(start), Seconds(5));
    ExpectSame(answer, WithoutCache(prompt));
  }
  const PrefixLoaderStats stats = *process.stats().prefixes;
  EXPECT_GT(stats.loads_failed + stats.not_worth, 0);
  EXPECT_LE(stats.pages_used, stats.pages_read);
  // Once it is known to be slow, requests compute at once.
  const int64_t not_worth = stats.not_worth;
  process.PushOut();
  const auto start = std::chrono::steady_clock::now();
  process.Run(prompts[0]);
  EXPECT_LT(Since(start), Seconds(5));
  EXPECT_GE(process.stats().prefixes->not_worth, not_worth);
}

TEST_F(TierFaultsTest, ADiskThatDoesNotAnswerCostsABoundedWait) {
  const auto prompt = SomeTokens(150, 11), other = SomeTokens(150, 1211);
  Fill({prompt, other});
  const Answer expected = WithoutCache(prompt), expected_other = WithoutCache(other);
  {
    Process process({.hurried = true, .host = kHost, .disk = directory_, .calls = calls_});
    calls_->Hang();
    for (int i = 0; i < 2; ++i) {
      auto start = std::chrono::steady_clock::now();
      ExpectSame(process.Run(prompt), expected);
      EXPECT_LT(Since(start), Seconds(5));
      start = std::chrono::steady_clock::now();
      ExpectSame(process.Run(other), expected_other);
      EXPECT_LT(Since(start), Seconds(5));
      process.PushOut();
    }
    // It ends, too, while the read still hangs: the thread that does is left behind,
  }
  calls_->Release();  // and touches nothing that is gone.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

TEST_F(TierFaultsTest, AFullDiskKeepsWhatItHasAndTakesMoreOnceThereIsRoom) {
  const auto first = SomeTokens(150, 11), second = SomeTokens(150, 1211);
  calls_->RoomFor(12 * 30000);  // Of the first request's pages and not all of the next one's
  {
    // Host memory for little more than a request, so that the disk is what keeps pages.
    Process process({.host = Bytes(kBlocks * 24576), .disk = directory_, .calls = calls_});
    ExpectSame(process.Run(first), WithoutCache(first));
    process.Settle();
    ExpectSame(process.Run(second), WithoutCache(second));
    process.Settle();
    process.PushOut();
    process.Settle();
    EXPECT_GT(calls_->refused(), 0);
    ExpectSame(process.Run(first), WithoutCache(first));
    process.Settle();
    ExpectSame(process.Run(second), WithoutCache(second));
    calls_->MakeRoom();
    const auto third = SomeTokens(150, 700);
    process.Run(third);
    process.Settle();
  }
  // What is on the disk is whole, and of what came after there was room, all.
  Process process({.host = kHost, .disk = directory_});
  const Answer third = process.Run(SomeTokens(150, 700));
  EXPECT_EQ(third.cached, 144);
  ExpectSame(third, WithoutCache(SomeTokens(150, 700)));
  ExpectSame(process.Run(first), WithoutCache(first));
  EXPECT_EQ(process.stats().prefixes->loads_failed, 0);
}

}  // namespace
}  // namespace divisi
