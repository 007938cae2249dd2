#include "divisi/kv/disk_store.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "divisi/kv/disk_store_fixture.h"

namespace divisi {
namespace {

using testing::HasSubstr;

int64_t Skipped(const DiskScan& scan, SkipReason reason) {
  return scan.skipped[static_cast<size_t>(reason)];
}

TEST_F(DiskStoreTest, GivesBackWhatWasPutAlsoAfterARestart) {
  {
    const auto store = Open();
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(Put(*store, i).ok());
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(Has(*store, i));
    EXPECT_EQ(Read(*store, 20).error().code, Code::kNotFound);
    EXPECT_EQ(store->stats().pages, 20);
    EXPECT_EQ(store->stats().bytes, Bytes(20 * kPageOnDisk));
  }
  const auto store = Open();
  const DiskScan scan = store->TakeScan();
  EXPECT_EQ(scan.pages.size(), 20u);
  EXPECT_EQ(scan.files, 20);
  for (size_t i = 0; i < 20; ++i) {  // In the order of writing.
    EXPECT_EQ(scan.pages[i].header, NumberedPage(static_cast<int>(i), kShape));
  }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(Has(*store, i));
  EXPECT_EQ(store->stats().bytes, Bytes(20 * kPageOnDisk));
}

TEST_F(DiskStoreTest, AFileIsAPageObject) {
  const auto store = Open();
  ASSERT_TRUE(Put(*store, 3).ok());
  const auto content = Content(FileOf(3));
  const auto expected = EncodePageObject(NumberedPage(3, kShape), NumberedPayload(3, kShape));
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(content)), expected));
  struct stat info {};
  ASSERT_EQ(::stat(FileOf(3).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(DiskStoreTest, KeepsToItsBudget) {
  const auto store = Open(3);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Put(*store, i).ok());
  EXPECT_TRUE(Put(*store, 2).ok());  // Is there.
  EXPECT_EQ(store->stats().puts, 3);
  const auto refused = Put(*store, 3);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("24 KiB of its budget of 24 KiB"));
  store->Remove(Key(1));
  EXPECT_FALSE(std::filesystem::exists(FileOf(1)));
  EXPECT_TRUE(Put(*store, 3).ok());
  EXPECT_FALSE(Has(*store, 1));
  EXPECT_EQ(store->stats().puts_refused, 1);
}

TEST_F(DiskStoreTest, ALowerBudgetRemovesTheLongestWritten) {
  {
    const auto store = Open();
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE(Put(*store, i).ok());
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  const auto store = Open(2);
  EXPECT_EQ(store->TakeScan().pages.size(), 2u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Has(*store, i), i >= 3);
  EXPECT_EQ(FilesIn("pages"), 2);
}

TEST_F(DiskStoreTest, ARemovedPageStaysForItsReaders) {
  const auto store = Open(1);
  ASSERT_TRUE(Put(*store, 1).ok());
  for (const bool again : {false, true}) {
    auto reader = store->Open(Key(1)).value();
    store->Remove(Key(1));
    EXPECT_EQ(store->stats().pages, 0);
    EXPECT_EQ(Put(*store, 2).error().code, Code::kResourceExhausted);
    std::vector<std::byte> bytes(3000);
    ASSERT_TRUE(reader->ReadLayers(0, 3, bytes).ok());
    EXPECT_EQ(bytes, NumberedPayload(1, kShape));
    if (!again) {
      ASSERT_TRUE(Put(*store, 1).ok());  // Its file is still there.
    }
    reader.reset();
    EXPECT_EQ(Has(*store, 1), !again);
  }
  EXPECT_TRUE(Put(*store, 2).ok());
}

TEST_F(DiskStoreTest, TwoProcessesNeverShareADirectory) {
  const auto store = Open();
  const auto second = DiskStore::Open(Options(), calls_, log_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  EXPECT_THAT(second.error().message,
              HasSubstr(Format("process {} has the KV directory {}; give each process a directory",
                               ::getpid(), directory_.string())));
}

// A lock of a process that died is none.
TEST_F(DiskStoreTest, TheLockEndsWithItsProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto store = Open();
    if (!Put(*store, 1).ok()) ::_exit(1);
    ::_exit(0);  // Without a destructor.
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_TRUE(Has(*Open(), 1));
}

TEST_F(DiskStoreTest, RefusesWhatIsNoDirectoryWithARemedy) {
  auto options = Options();
  options.directory = directory_ / "missing" / "kv";
  auto opened = DiskStore::Open(options, calls_, log_);
  EXPECT_THAT(opened.error().message, HasSubstr("name a directory that this user may write"));
  options.directory = directory_ / "file";
  Write(options.directory, {'x'});
  opened = DiskStore::Open(options, calls_, log_);
  EXPECT_EQ(opened.error().code, Code::kInvalidArgument);
}

TEST_F(DiskStoreTest, SkipsWhatIsNoPageOfThisModelWithAReason) {
  {
    const auto store = Open();
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(Put(*store, i).ok());
  }
  const auto good = Content(FileOf(1));
  const auto change = [&](int number, auto edit) {
    auto content = Content(FileOf(number));
    edit(content);
    Write(FileOf(number), content);
  };
  change(1, [](auto& c) { c.resize(100); });               // Truncated in the head,
  change(2, [](auto& c) { c.resize(5000); });              // and in a layer.
  change(3, [](auto& c) { c[50] ^= 1; });                  // Damaged.
  change(4, [](auto& c) { std::ranges::fill(c, '\0'); });  // Torn: its blocks never came.
  change(5, [](auto& c) { c[8] = 2; });                    // Another version.
  change(6, [&](auto& c) { c = good; });                   // Another page.
  auto other = NumberedPage(7, kShape);
  other.model.bytes[0] = 99;
  change(7, [&](auto& c) {
    const auto object = EncodePageObject(other, NumberedPayload(7, kShape));
    c.assign(reinterpret_cast<const char*>(object.data()),
             reinterpret_cast<const char*>(object.data() + object.size()));
  });
  Write(directory_ / "pages/08/readme.txt", {'h', 'i'});  // Foreign: three.
  std::filesystem::create_directory(directory_ / "pages/64");
  std::filesystem::create_directory(directory_ / "pages/68");
  std::filesystem::create_symlink("/etc/hostname", directory_ / PagePath(Key(100)));
  Write(directory_ / "pages/notes", {'h', 'i'});
  Write(directory_ / "pages/08/08.7.tmp", {'h', 'i'});                      // A dead writer's.
  ASSERT_EQ(::mkfifo((directory_ / PagePath(Key(104))).c_str(), 0600), 0);  // Nobody writes to it.

  const auto store = Open();
  const DiskScan scan = store->TakeScan();
  EXPECT_EQ(scan.pages.size(), 3u);
  EXPECT_EQ(Skipped(scan, SkipReason::kTruncated), 2);
  EXPECT_EQ(Skipped(scan, SkipReason::kDamaged), 2);
  EXPECT_EQ(Skipped(scan, SkipReason::kVersion), 1);
  EXPECT_EQ(Skipped(scan, SkipReason::kMisplaced), 1);
  EXPECT_EQ(Skipped(scan, SkipReason::kModel), 1);
  EXPECT_EQ(Skipped(scan, SkipReason::kForeign), 4);
  EXPECT_EQ(scan.leftovers, 1);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Has(*store, i), i == 0 || i > 7);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "pages/08/08.7.tmp"));
  EXPECT_TRUE(std::filesystem::exists(directory_ / "pages/08/readme.txt"));
  // What has a page's name takes its place, until a page needs it.
  EXPECT_GT(store->stats().worthless, Bytes(0));
  ASSERT_TRUE(Put(*store, 5).ok());
  EXPECT_TRUE(Has(*store, 5));
}

TEST_F(DiskStoreTest, WorthlessFilesGiveWay) {
  {
    const auto store = Open(4);
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(Put(*store, i).ok());
  }
  auto options = Options(4);
  options.model.bytes[5] = 77;
  const auto store = DiskStore::Open(options, calls_, log_).value();
  EXPECT_EQ(store->stats().worthless, Bytes(4 * kPageOnDisk));
  auto page = NumberedPage(9, kShape);
  page.model = options.model;
  ASSERT_TRUE(store->Put(page, NumberedPayload(9, kShape)).ok());
  EXPECT_EQ(store->stats().bytes, Bytes(4 * kPageOnDisk));
  EXPECT_EQ(FilesIn("pages"), 4);
  EXPECT_EQ(Put(*store, 5).error().code, Code::kInvalidArgument);  // Of the other model.
}

// Each bit of a file, flipped under the running store: never read as good, and read once.
TEST_F(DiskStoreTest, DamageIsFoundPutAsideAndNotReadAgain) {
  const auto store = Open();
  ASSERT_TRUE(Put(*store, 1).ok());
  const auto good = Content(FileOf(1));
  Random random(3);
  std::vector<size_t> places;
  for (size_t at = 0; at < 168; ++at) places.push_back(at);
  for (int i = 0; i < 30; ++i) {
    places.push_back(static_cast<size_t>(random.Between(168, 7095)));
  }
  // In place, and not over what is in the quarantine: renaming over a file flushes it.
  const auto flip = [&](size_t at) {
    std::filesystem::remove(directory_ / "quarantine" / FileOf(1).filename());
    std::fstream file(FileOf(1), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(good[at] ^ (1 << (at % 8))));
  };
  for (const size_t at : places) {
    flip(at);
    const auto read = Read(*store, 1);
    ASSERT_FALSE(read.ok()) << at;
    EXPECT_EQ(read.error().code, Code::kDataLoss);
    EXPECT_EQ(Read(*store, 1).error().code, Code::kNotFound);
    EXPECT_FALSE(std::filesystem::exists(FileOf(1)));
    ASSERT_TRUE(Put(*store, 1).ok());
  }
  EXPECT_EQ(store->stats().damaged, static_cast<int64_t>(places.size()));
  EXPECT_EQ(FilesIn("quarantine"), 1);
  for (size_t size = 0; size < good.size(); size += 397) {
    std::filesystem::remove(directory_ / "quarantine" / FileOf(1).filename());
    std::filesystem::resize_file(FileOf(1), size);
    ASSERT_EQ(Read(*store, 1).error().code, Code::kDataLoss) << size;
    ASSERT_TRUE(Put(*store, 1).ok());
  }
  EXPECT_TRUE(Has(*store, 1));
}

TEST_F(DiskStoreTest, TheQuarantineIsBounded) {
  for (int round = 0; round < 2; ++round) {
    const auto store = Open();
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(Put(*store, i).ok());
      auto bad = Content(FileOf(i));
      bad.back() ^= 1;
      Write(FileOf(i), bad);
      EXPECT_FALSE(Has(*store, i));
    }
    EXPECT_EQ(FilesIn("quarantine"), 8);
    EXPECT_EQ(store->stats().quarantined, 8);
    EXPECT_EQ(store->stats().bytes, Bytes(0));
  }
}

TEST_F(DiskStoreTest, FilesThatWentAwayAreForgotten) {
  const auto store = Open();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Put(*store, i).ok());
  std::filesystem::remove(FileOf(1));
  EXPECT_EQ(Read(*store, 1).error().code, Code::kNotFound);
  EXPECT_EQ(store->stats().vanished, 1);
  EXPECT_EQ(store->stats().bytes, Bytes(2 * kPageOnDisk));
  EXPECT_TRUE(Has(*store, 0));
  std::filesystem::remove_all(directory_ / "pages/02");
  EXPECT_FALSE(Has(*store, 2));
  EXPECT_TRUE(Put(*store, 2).ok());  // The folder is made anew.
  EXPECT_TRUE(Has(*store, 2));
}

TEST_F(DiskStoreTest, OutlivesTheRemovalOfItsDirectory) {
  const auto store = Open();
  ASSERT_TRUE(Put(*store, 1).ok());
  std::filesystem::remove_all(directory_);
  const auto put = Put(*store, 2);
  EXPECT_EQ(put.error().code, Code::kUnavailable);
  EXPECT_THAT(put.error().message, HasSubstr("was removed under this process: restart"));
  EXPECT_FALSE(Has(*store, 1));
  // Another one in its place may be another process's.
  std::filesystem::create_directory(directory_);
  EXPECT_FALSE(Put(*store, 2).ok());
  EXPECT_EQ(store->stats().bytes, Bytes(0));
}

TEST_F(DiskStoreTest, ReadersBeyondTheOpenFilesReadAllTheSame) {
  auto options = Options();
  options.most_open = 2;
  const auto store = DiskStore::Open(options, calls_, log_).value();
  std::vector<std::unique_ptr<PageReader>> readers;
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(Put(*store, i).ok());
    readers.push_back(store->Open(Key(i)).value());
  }
  EXPECT_EQ(store->stats().open_files, 2);
  for (int i = 0; i < 5; ++i) {
    store->Remove(Key(i));
    std::vector<std::byte> bytes(3000);
    ASSERT_TRUE(readers[static_cast<size_t>(i)]->ReadLayers(0, 3, bytes).ok());
    EXPECT_EQ(bytes, NumberedPayload(i, kShape));
  }
  readers.clear();
  EXPECT_EQ(store->stats().open_files, 0);
  EXPECT_EQ(FilesIn("pages"), 0);
}

TEST_F(DiskStoreTest, ThreadsNeverSeeAPartOfAPage) {
  const auto store = Open(4);
  std::atomic<int64_t> read = 0;
  const auto work = [&](uint64_t seed) {
    Random random(seed);
    for (int i = 0; i < 1000; ++i) {
      const int number = static_cast<int>(random.Between(1, 8));
      const int64_t choice = random.Between(0, 3);
      if (choice == 0) store->Remove(Key(number));
      if (choice == 1) (void)Put(*store, number);
      if (choice < 2) continue;
      const auto bytes = Read(*store, number);
      if (!bytes) continue;
      ASSERT_EQ(*bytes, NumberedPayload(number, kShape));
      ++read;
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t seed = 1; seed <= 4; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(read, 50);
  const DiskStoreStats stats = store->stats();
  EXPECT_EQ(stats.damaged + stats.unreadable, 0);
  EXPECT_EQ(stats.bytes, Bytes(stats.pages * kPageOnDisk));
  EXPECT_EQ(FilesIn("pages"), stats.pages);
}

}  // namespace
}  // namespace divisi
