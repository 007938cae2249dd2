// For tests of the disk tier: a directory of its own for each test, and files to damage in it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "divisi/kv/disk_store.h"
#include "divisi/kv/page_store_fixture.h"

namespace divisi {

class DiskStoreTest : public testing::Test {
 protected:
  static constexpr PageShape kShape{.layers = 3, .layer_bytes = 1000};
  static constexpr int64_t kPageOnDisk = 8192;

  DiskStoreTest() {
    std::string name = testing::TempDir() + "divisi_disk_XXXXXX";
    directory_ = ::mkdtemp(name.data());
  }
  ~DiskStoreTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  DiskStoreOptions Options(int64_t pages = 1000) const {
    return {.directory = directory_,
            .budget = Bytes(pages * kPageOnDisk),
            .shape = kShape,
            .model = NumberedPage(0, kShape).model};
  }
  std::unique_ptr<DiskStore> Open(int64_t pages = 1000) {
    return DiskStore::Open(Options(pages), calls_, log_).value();
  }
  static Result<void> Put(PageStore& store, int number) {
    return store.Put(NumberedPage(number, kShape), NumberedPayload(number, kShape));
  }
  static BlockKey Key(int number) { return NumberedPage(number, kShape).key; }
  static Result<std::vector<std::byte>> Read(PageStore& store, int number) {
    store.WillOpen(Key(number), PageUse::kLayers);
    ASSIGN_OR_RETURN(const auto reader, store.Open(Key(number)));
    EXPECT_EQ(reader->header(), NumberedPage(number, kShape));
    std::vector<std::byte> bytes(3000);
    reader->WillRead(0, 3);
    RETURN_IF_ERROR(reader->ReadLayers(0, 1, std::span(bytes).first(1000)));
    RETURN_IF_ERROR(reader->ReadLayers(1, 2, std::span(bytes).last(2000)));
    return bytes;
  }
  static bool Has(PageStore& store, int number) {
    const auto read = Read(store, number);
    EXPECT_TRUE(!read || *read == NumberedPayload(number, kShape));
    return read.ok();
  }

  std::filesystem::path FileOf(int number) const { return directory_ / PagePath(Key(number)); }
  static std::vector<char> Content(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void Write(const std::filesystem::path& path, const std::vector<char>& content) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(content.data(), static_cast<std::streamsize>(content.size()));
  }
  int64_t FilesIn(const std::string& folder, const std::string& ending = "") const {
    int64_t files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_ / folder)) {
      files += !entry.is_directory() && entry.path().string().ends_with(ending);
    }
    return files;
  }

  std::filesystem::path directory_;
  DiskCalls calls_;
  Logger log_{{.least = LogLevel::kError}};
};

}  // namespace divisi
