#include "divisi/model/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "divisi/core/file.h"
#include "divisi/core/format.h"
#include "divisi/model/model_tensors.h"

namespace divisi {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

std::vector<TensorSlot> ThreeSlots() {
  return {{"b", DataType::kBf16, {2, 3}},  // 12 bytes
          {"a", DataType::kF32, {}},       // 4
          {"c", DataType::kF16, {5}}};     // 10
}

std::filesystem::path TempPath(const char* name) {
  return std::filesystem::path(testing::TempDir()) / Format("{}-{}", name, getpid());
}

std::vector<std::byte> Counting(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

TEST(SafetensorsWriterTest, ParserReadsWhatWasWritten) {
  const auto path = TempPath("safetensors_writer_test");
  auto writer = SafetensorsWriter::Create(path, ThreeSlots()).value();
  const auto data = Counting(26);
  // Pieces end inside tensors.
  ASSERT_TRUE(writer.Append(std::span(data).first(7)).ok());
  ASSERT_TRUE(writer.Append(std::span(data).subspan(7)).ok());
  ASSERT_TRUE(writer.Finish().ok());
  const auto file = MappedFile::Open(path).value();
  EXPECT_EQ((file.bytes().size() - data.size()) % 8, 0u);
  const Safetensors parsed = ParseSafetensors(file.bytes()).value();
  ASSERT_THAT(parsed.tensors, SizeIs(3));
  EXPECT_THAT(parsed.tensors.at("b").shape, ElementsAre(2, 3));
  EXPECT_EQ(parsed.tensors.at("a").type, DataType::kF32);
  EXPECT_EQ(parsed.tensors.at("a").bytes[0], std::byte{12});
  EXPECT_EQ(parsed.tensors.at("c").bytes[9], std::byte{25});
  std::filesystem::remove(path);
}

TEST(SafetensorsWriterDeathTest, CountsItsBytes) {
  const auto path = TempPath("safetensors_writer_count");
  const auto write = [&](size_t size) {
    auto writer = SafetensorsWriter::Create(path, ThreeSlots()).value();
    if (!writer.Append(Counting(size)) || !writer.Finish()) return;
  };
  EXPECT_DEATH(write(27), "1 bytes more");
  EXPECT_DEATH(write(25), "1 bytes of the slots were not written");
}

TEST(DealShardsTest, KeepsOrderAndBound) {
  const auto shards = DealShards(ThreeSlots(), Bytes(16));
  ASSERT_THAT(shards, SizeIs(2));
  EXPECT_EQ(shards[0].name, "model-00001-of-00002.safetensors");
  EXPECT_THAT(shards[0].slots, SizeIs(2));  // 12 + 4
  EXPECT_EQ(shards[1].slots[0].name, "c");
  EXPECT_EQ(ShardIndex(shards).Dump(),
            R"({"metadata":{"total_size":26},"weight_map":{)"
            R"("b":"model-00001-of-00002.safetensors","a":"model-00001-of-00002.safetensors",)"
            R"("c":"model-00002-of-00002.safetensors"}})");
}

TEST(DealShardsTest, ATensorBeyondTheBoundStandsAlone) {
  const auto shards = DealShards(ThreeSlots(), Bytes(11));
  ASSERT_THAT(shards, SizeIs(3));
  for (const Shard& shard : shards) EXPECT_THAT(shard.slots, SizeIs(1));
}

TEST(DealShardsTest, AllInOneFileHasThePlainName) {
  const auto shards = DealShards(ThreeSlots(), Bytes(26));
  ASSERT_THAT(shards, SizeIs(1));
  EXPECT_EQ(shards[0].name, "model.safetensors");
}

}  // namespace
}  // namespace divisi
