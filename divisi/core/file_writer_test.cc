#include "divisi/core/file_writer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "divisi/core/file.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

class FileWriterTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        std::filesystem::path(testing::TempDir()) / Format("file_writer_test-{}", getpid());
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::filesystem::path directory_;
};

std::span<const std::byte> BytesOf(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST_F(FileWriterTest, NothingIsVisibleBeforeCommit) {
  const auto path = directory_ / "file";
  ASSERT_TRUE(WriteFileAtomic(path, "old").ok());
  FileWriter writer = FileWriter::Create(path).value();
  ASSERT_TRUE(writer.Append(BytesOf("new ")).ok());
  ASSERT_TRUE(writer.Append(BytesOf("content")).ok());
  EXPECT_EQ(ReadFile(path, 100).value(), "old");
  ASSERT_TRUE(writer.Commit().ok());
  EXPECT_EQ(ReadFile(path, 100).value(), "new content");
}

TEST_F(FileWriterTest, AbandonedLeavesNothing) {
  {
    FileWriter writer = FileWriter::Create(directory_ / "file").value();
    ASSERT_TRUE(writer.Append(BytesOf("half")).ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(FileWriterTest, SaysWhatIsWrong) {
  EXPECT_EQ(FileWriter::Create(directory_ / "no" / "file").error().code, Code::kNotFound);
}

// A rename over a device, as root, takes it from the whole machine.
TEST_F(FileWriterTest, ReplacesOnlyRegularFiles) {
  const auto pipe = directory_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ASSERT_TRUE(WriteFileAtomic(directory_ / "file", "old").ok());
  std::filesystem::create_symlink(pipe, directory_ / "link");
  std::filesystem::create_symlink(directory_ / "file", directory_ / "link to file");
  std::filesystem::create_directories(directory_ / "taken");
  for (const char* name : {"pipe", "link", "link to file", "taken"}) {
    const auto writer = FileWriter::Create(directory_ / name);
    ASSERT_FALSE(writer.ok()) << name;
    EXPECT_EQ(writer.error().code, Code::kInvalidArgument);
    EXPECT_NE(writer.error().message.find(name), std::string::npos);
    EXPECT_FALSE(WriteFileAtomic(directory_ / name, "text").ok()) << name;
  }
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_TRUE(std::filesystem::is_symlink(directory_ / "link"));
  EXPECT_TRUE(std::filesystem::is_symlink(directory_ / "link to file"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 5);
}

}  // namespace
}  // namespace divisi
