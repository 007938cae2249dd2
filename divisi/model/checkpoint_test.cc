#include "divisi/model/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <numeric>

namespace divisi {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kTinyModel = DIVISI_SOURCE_DIR "/models/tiny-qwen3";

// A directory of its own for one test, with tiny-qwen3's config.
class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(testing::TempDir()) /
                 Format("checkpoint_test_{}-{}",
                        testing::UnitTest::GetInstance()->current_test_info()->name(), getpid());
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    std::filesystem::copy(std::filesystem::path(kTinyModel) / "config.json", directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void Write(std::string_view name, std::string_view content) {
    ASSERT_TRUE(WriteFileAtomic(directory_ / name, content).ok());
  }
  // A shard of BF16 tensors of one element each.
  void WriteShard(std::string_view name, const std::vector<std::string>& tensors) {
    Json header = Json::MakeObject();
    int64_t at = 0;
    for (const std::string& tensor : tensors) {
      header.Set(tensor, Json::Object{{"dtype", "BF16"},
                                      {"shape", Json::Array{1}},
                                      {"data_offsets", Json::Array{at, at + 2}}});
      at += 2;
    }
    const std::string text = header.Dump();
    std::string file(8, '\0');
    for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(text.size() >> (8 * i));
    Write(name, file + text + std::string(static_cast<size_t>(at), '\1'));
  }
  void WriteIndex(const Json::Object& weight_map) {
    Write("model.safetensors.index.json",
          Json(Json::Object{{"metadata", Json::MakeObject()}, {"weight_map", weight_map}}).Dump());
  }
  Error OpenError() {
    const auto checkpoint = Checkpoint::Open(directory_);
    EXPECT_FALSE(checkpoint.ok());
    return checkpoint ? Error{} : checkpoint.error();
  }

  std::filesystem::path directory_;
};

TEST_F(CheckpointTest, OpensTheBundledModel) {
  const Checkpoint checkpoint = Checkpoint::Open(kTinyModel).value();
  EXPECT_EQ(checkpoint.spec().layers, 6);
  EXPECT_EQ(checkpoint.directory(), kTinyModel);
  int64_t elements = 0;
  for (const auto& [name, view] : checkpoint.tensors()) {
    elements +=
        std::accumulate(view.shape.begin(), view.shape.end(), int64_t{1}, std::multiplies());
  }
  EXPECT_EQ(elements, checkpoint.spec().Parameters());
  EXPECT_EQ(checkpoint.TotalBytes(), Bytes(2 * elements));
  EXPECT_EQ(checkpoint.Get("model.layers.5.self_attn.k_proj.weight", {64, 128})->bytes.size(),
            2u * 64 * 128);
}

TEST_F(CheckpointTest, GetNamesWhatIsWrong) {
  const Checkpoint checkpoint = Checkpoint::Open(kTinyModel).value();
  const Error missing = checkpoint.Get("model.nothing", {1}).error();
  EXPECT_EQ(missing.code, Code::kNotFound);
  EXPECT_THAT(missing.message, HasSubstr("\"model.nothing\""));
  const Error shape = checkpoint.Get("model.norm.weight", {64, 2}).error();
  EXPECT_EQ(shape.code, Code::kDataLoss);
  EXPECT_THAT(shape.message,
              AllOf(HasSubstr("\"model.norm.weight\""), HasSubstr("[128]"), HasSubstr("[64, 2]")));
}

TEST_F(CheckpointTest, GetSaysThatATypeIsLacking) {
  const std::string header = R"({"ids":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})";
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  Write("model.safetensors", file + header + std::string(8, '\0'));
  const Checkpoint checkpoint = Checkpoint::Open(directory_).value();
  EXPECT_TRUE(checkpoint.tensors().empty());
  const Error error = checkpoint.Get("ids", {1}).error();
  EXPECT_EQ(error.code, Code::kUnimplemented);
  EXPECT_THAT(error.message, AllOf(HasSubstr("\"ids\""), HasSubstr("I64")));
}

TEST_F(CheckpointTest, PopulateReportsUpToTheEnd) {
  const Checkpoint checkpoint = Checkpoint::Open(kTinyModel).value();
  std::vector<Bytes> reports;
  Bytes all;
  checkpoint.Populate([&](Bytes done, Bytes total) {
    reports.push_back(done);
    all = total;
  });
  ASSERT_GE(reports.size(), 2u);
  EXPECT_EQ(reports.front(), Bytes(0));
  EXPECT_EQ(reports.back(), all);
  EXPECT_GT(all, checkpoint.TotalBytes());
  EXPECT_TRUE(std::ranges::is_sorted(reports));
}

TEST_F(CheckpointTest, ReadsShardsAndSurvivesMoving) {
  WriteShard("model-00001-of-00002.safetensors", {"a", "b"});
  WriteShard("model-00002-of-00002.safetensors", {"c"});
  WriteIndex({{"a", "model-00001-of-00002.safetensors"},
              {"b", "model-00001-of-00002.safetensors"},
              {"c", "model-00002-of-00002.safetensors"}});
  Checkpoint opened = Checkpoint::Open(directory_).value();
  const Checkpoint checkpoint = std::move(opened);
  EXPECT_EQ(checkpoint.tensors().size(), 3u);
  EXPECT_EQ(checkpoint.TotalBytes(), Bytes(6));
  EXPECT_EQ(checkpoint.Get("c", {1})->bytes[1], std::byte{1});
}

TEST_F(CheckpointTest, OneFileWinsOverAnIndex) {
  WriteShard("model.safetensors", {"one"});
  WriteIndex({{"a", "gone.safetensors"}});
  EXPECT_TRUE(Checkpoint::Open(directory_)->tensors().contains("one"));
}

TEST_F(CheckpointTest, SaysWhatADirectoryHolds) {
  const Error no_weights = OpenError();
  EXPECT_EQ(no_weights.code, Code::kNotFound);
  EXPECT_THAT(no_weights.message,
              AllOf(HasSubstr(directory_.string()), HasSubstr("has no model.safetensors"),
                    HasSubstr("model.safetensors.index.json")));
  std::filesystem::remove(directory_ / "config.json");
  const Error no_config = OpenError();
  EXPECT_EQ(no_config.code, Code::kNotFound);
  EXPECT_THAT(no_config.message, HasSubstr("has no config.json"));
}

TEST_F(CheckpointTest, ErrorsNameTheFile) {
  Write("model.safetensors", "short");
  EXPECT_THAT(OpenError().message,
              AllOf(HasSubstr((directory_ / "model.safetensors").string()), HasSubstr("5 bytes")));
  Write("config.json", R"({"model_type": "llama", "hidden_size": -1})");
  EXPECT_THAT(OpenError().message, AllOf(HasSubstr((directory_ / "config.json").string()),
                                         HasSubstr("num_hidden_layers")));
  Write("config.json", "{");
  EXPECT_THAT(OpenError().message, AllOf(HasSubstr("config.json"), HasSubstr("JSON")));
  Write("config.json", std::string((1 << 20) + 1, ' '));
  EXPECT_EQ(OpenError().code, Code::kOutOfRange);
}

TEST_F(CheckpointTest, RefusesAMissingShard) {
  WriteShard("one.safetensors", {"a"});
  WriteIndex({{"a", "one.safetensors"}, {"b", "two.safetensors"}});
  const Error error = OpenError();
  EXPECT_EQ(error.code, Code::kNotFound);
  EXPECT_THAT(error.message, HasSubstr("two.safetensors"));
}

TEST_F(CheckpointTest, RefusesATensorThatNoShardHolds) {
  WriteShard("one.safetensors", {"a"});
  WriteIndex({{"a", "one.safetensors"}, {"b", "one.safetensors"}});
  const Error error = OpenError();
  EXPECT_EQ(error.code, Code::kDataLoss);
  EXPECT_THAT(error.message, AllOf(HasSubstr("\"b\""), HasSubstr("one.safetensors")));
}

TEST_F(CheckpointTest, RefusesAnUnlistedTensor) {
  WriteShard("one.safetensors", {"a", "b"});
  WriteIndex({{"a", "one.safetensors"}});
  EXPECT_EQ(OpenError().code, Code::kDataLoss);
  EXPECT_THAT(OpenError().message, AllOf(HasSubstr("\"b\""), HasSubstr("does not list")));
}

TEST_F(CheckpointTest, RefusesATensorInTwoShards) {
  WriteShard("one.safetensors", {"a"});
  WriteShard("two.safetensors", {"a", "b"});
  WriteIndex({{"a", "one.safetensors"}, {"b", "two.safetensors"}});
  EXPECT_EQ(OpenError().code, Code::kDataLoss);
  EXPECT_THAT(OpenError().message,
              AllOf(HasSubstr("\"a\" is in two.safetensors"), HasSubstr("one.safetensors")));
}

TEST_F(CheckpointTest, RefusesADamagedShardByName) {
  WriteShard("one.safetensors", {"a"});
  Write("two.safetensors", "");
  WriteIndex({{"a", "one.safetensors"}, {"b", "two.safetensors"}});
  EXPECT_EQ(OpenError().code, Code::kDataLoss);
  EXPECT_THAT(OpenError().message, HasSubstr((directory_ / "two.safetensors").string()));
}

TEST_F(CheckpointTest, RefusesShardsOutsideTheDirectory) {
  for (const char* shard : {"../model.safetensors", "/etc/model.safetensors", "a/b.safetensors",
                            "..\\b.safetensors", "passwd", "", "a\nb.safetensors"}) {
    WriteIndex({{"a", shard}});
    EXPECT_EQ(OpenError().code, Code::kInvalidArgument) << shard;
    EXPECT_THAT(OpenError().message, HasSubstr("tensor \"a\"")) << shard;
  }
}

TEST_F(CheckpointTest, RefusesMalformedIndexes) {
  constexpr const char* kIndex = "model.safetensors.index.json";
  for (const char* text :
       {"[]", "{}", R"({"weight_map": []})", R"({"weight_map": {}})", R"({"weight_map": {"a": 1}})",
        "{", "", R"({"weight_map": {"a": "x.safetensors", "a": "x.safetensors"}})"}) {
    Write(kIndex, text);
    EXPECT_EQ(OpenError().code, Code::kInvalidArgument) << text;
    EXPECT_THAT(OpenError().message, HasSubstr(kIndex)) << text;
  }
}

}  // namespace
}  // namespace divisi
