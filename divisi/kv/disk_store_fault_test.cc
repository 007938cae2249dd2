// The i-th call to the system fails, for each i, once and from then on: nothing is lost or wrong.
#include <gmock/gmock.h>

#include <atomic>
#include <cerrno>

#include "divisi/kv/disk_store_fixture.h"

namespace divisi {
namespace {

// Counts calls from Arm on and fails one, or all from that one.
class FailingCalls final : public DiskCalls {
 public:
  void Arm(int64_t call, int cause, bool for_good) {
    next_ = 0;
    call_ = call;
    cause_ = cause;
    for_good_ = for_good;
  }
  void Disarm() { call_ = -1; }
  bool reached() const { return next_ > call_; }

  int Open(int directory, const std::string& path, int flags) override {
    return Fails() ? -1 : DiskCalls::Open(directory, path, flags);
  }
  int Close(int fd) override {
    const bool fails = Fails();
    const int closed = DiskCalls::Close(fd);
    if (fails) errno = cause_;
    return fails ? -1 : closed;
  }
  int64_t Read(int fd, std::span<std::byte> to, int64_t at) override {
    // Short where it doesn't fail: never more than 700 bytes at a time.
    return Fails() ? -1 : DiskCalls::Read(fd, to.first(std::min<size_t>(700, to.size())), at);
  }
  int64_t Write(int fd, std::span<const std::byte> from, int64_t at) override {
    return Fails() ? -1 : DiskCalls::Write(fd, from.first(std::min<size_t>(900, from.size())), at);
  }
  int Sync(int fd) override { return Fails() ? -1 : DiskCalls::Sync(fd); }
  int Rename(int directory, const std::string& from, const std::string& to) override {
    return Fails() ? -1 : DiskCalls::Rename(directory, from, to);
  }
  int Unlink(int directory, const std::string& path) override {
    return Fails() ? -1 : DiskCalls::Unlink(directory, path);
  }
  int MakeDirectory(int directory, const std::string& path) override {
    return Fails() ? -1 : DiskCalls::MakeDirectory(directory, path);
  }

 private:
  bool Fails() {
    const int64_t call = next_++;
    const bool fails = call_ >= 0 && (for_good_ ? call >= call_ : call == call_);
    if (fails) errno = cause_;
    return fails;
  }
  std::atomic<int64_t> next_ = 0, call_ = -1;  // The scan has several threads.
  int cause_ = 0;
  bool for_good_ = false;
};

class DiskStoreFaultTest : public DiskStoreTest {
 protected:
  std::unique_ptr<DiskStore> OpenFailing() {
    auto options = Options();
    options.sync = true;
    return DiskStore::Open(options, failing_, log_).value();
  }
  std::filesystem::path TemporaryOf(int number) const {
    return FileOf(number).replace_extension(".tmp");
  }
  FailingCalls failing_;
};

TEST_F(DiskStoreFaultTest, AFailedPutLeavesNothingAndLosesNothing) {
  const auto store = OpenFailing();
  ASSERT_TRUE(Put(*store, 0).ok());
  int number = 1;
  for (const int cause : {ENOSPC, EDQUOT, EIO, EROFS, ENOENT, EMFILE}) {
    for (const bool for_good : {false, true}) {
      for (int64_t call = 0;; ++call, ++number) {
        failing_.Arm(call, cause, for_good);
        const auto put = Put(*store, number);
        const bool reached = failing_.reached();
        failing_.Disarm();
        EXPECT_EQ(Has(*store, number), put.ok());
        ASSERT_TRUE(Has(*store, 0)) << "call " << call;
        if (put.ok()) store->Remove(Key(number));
        EXPECT_EQ(store->stats().bytes, Bytes(kPageOnDisk));
        if (!put) {
          EXPECT_THAT(put.error().message, testing::HasSubstr(directory_.string()));
        }
        // A temporary file may stay where removing it failed, too; the next start removes it.
        EXPECT_EQ(FilesIn("pages", ".kv"), 1);
        EXPECT_TRUE(for_good || !std::filesystem::exists(TemporaryOf(number)));
        if (!reached) break;
        ASSERT_LT(call, 100);
      }
    }
  }
  EXPECT_GT(store->stats().puts_failed, 50);
}

TEST_F(DiskStoreFaultTest, ErrorsNameTheRemedy) {
  const auto store = OpenFailing();
  const auto why = [&](int cause) {
    failing_.Arm(0, cause, true);
    const auto put = Put(*store, 1);
    failing_.Disarm();
    return put.error();
  };
  EXPECT_EQ(why(ENOSPC).code, Code::kResourceExhausted);
  EXPECT_THAT(why(ENOSPC).message, testing::HasSubstr("free space there, or lower the tier's"));
  EXPECT_THAT(why(EROFS).message, testing::HasSubstr("make it writable"));
  EXPECT_THAT(why(EIO).message, testing::HasSubstr("the disk fails"));
  EXPECT_THAT(why(EMFILE).message, testing::HasSubstr("ulimit -n"));
  EXPECT_TRUE(Put(*store, 1).ok());
}

TEST_F(DiskStoreFaultTest, APageWhoseReadingFailsIsNotReadAgain) {
  const auto store = OpenFailing();
  for (const bool for_good : {false, true}) {
    int64_t failed = 0;
    for (int64_t call = 0;; ++call) {
      ASSERT_TRUE(Put(*store, 1).ok());
      failing_.Arm(call, EIO, for_good);
      const auto read = Read(*store, 1);
      const bool reached = failing_.reached();
      failing_.Disarm();
      if (read) {
        EXPECT_EQ(*read, NumberedPayload(1, kShape));
      } else {
        ++failed;
        EXPECT_EQ(read.error().code, Code::kUnavailable);
        EXPECT_EQ(Read(*store, 1).error().code, Code::kNotFound);
        EXPECT_EQ(store->stats().bytes, Bytes(0));
      }
      if (!reached) break;
      ASSERT_LT(call, 100);
    }
    EXPECT_GT(failed, 5);
  }
}

TEST_F(DiskStoreFaultTest, WithoutDescriptorsOrMemoryAPageIsNotBad) {
  const auto store = OpenFailing();
  ASSERT_TRUE(Put(*store, 1).ok());
  for (const int cause : {EMFILE, ENFILE, ENOMEM}) {
    for (int64_t call = 0;; ++call) {
      failing_.Arm(call, cause, true);
      const auto read = Read(*store, 1);
      failing_.Disarm();
      if (read) break;
      EXPECT_EQ(read.error().code, Code::kResourceExhausted) << call;
      EXPECT_TRUE(Has(*store, 1));
    }
  }
}

TEST_F(DiskStoreFaultTest, StartsOverWhatCannotBeRead) {
  {
    const auto store = Open();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(Put(*store, i).ok());
  }
  for (const bool for_good : {false, true}) {
    for (int64_t call = 0;; ++call) {
      failing_.Arm(call, EIO, for_good);
      const auto store = DiskStore::Open(Options(), failing_, log_);
      const bool reached = failing_.reached();
      failing_.Disarm();
      if (!reached) {
        ASSERT_TRUE(store.ok());
        EXPECT_EQ((*store)->stats().pages, 3);
        break;
      }
      ASSERT_LT(call, 200);
      if (!store) continue;  // It says why.
      for (int i = 0; i < 3; ++i) (void)Has(**store, i);
      EXPECT_TRUE(Put(**store, 9).ok());
      (*store)->Remove(Key(9));
    }
  }
}

}  // namespace
}  // namespace divisi
