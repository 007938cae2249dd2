#include "divisi/core/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "divisi/core/format.h"

namespace divisi {
namespace {

std::filesystem::path TempPath(const char* name) {
  return std::filesystem::path(testing::TempDir()) / Format("{}-{}", name, getpid());
}

TEST(FileTest, WritesReadsAndMapsTheSameBytes) {
  const auto path = TempPath("file_test_bytes");
  const std::string content("a\0b\n", 4);
  ASSERT_TRUE(WriteFileAtomic(path, content).ok());
  EXPECT_EQ(ReadFile(path, 100).value(), content);
  const MappedFile mapped = MappedFile::Open(path).value();
  ASSERT_EQ(mapped.bytes().size(), 4u);
  EXPECT_EQ(std::memcmp(mapped.bytes().data(), content.data(), 4), 0);
  mapped.Populate(1, 3);
}

TEST(FileTest, EmptyFileMaps) {
  const auto path = TempPath("file_test_empty");
  ASSERT_TRUE(WriteFileAtomic(path, "").ok());
  EXPECT_TRUE(MappedFile::Open(path)->bytes().empty());
}

TEST(FileTest, SaysWhatIsWrong) {
  EXPECT_EQ(ReadFile("/nonexistent/file", 1).error().code, Code::kNotFound);
  EXPECT_EQ(MappedFile::Open("/").error().code, Code::kInvalidArgument);
  const auto path = TempPath("file_test_large");
  ASSERT_TRUE(WriteFileAtomic(path, "12345").ok());
  EXPECT_EQ(ReadFile(path, 4).error().code, Code::kOutOfRange);
  EXPECT_EQ(WriteFileAtomic("/nonexistent/dir/file", "x").error().code, Code::kNotFound);
}

}  // namespace
}  // namespace divisi
