#include "divisi/cli/model_setup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "divisi/core/format.h"
#include "divisi/model/checkpoint.h"

namespace divisi {
namespace {

namespace fs = std::filesystem;

// A copy of a bundled model, removed at the end.
class ModelFingerprintTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(copy_);
    fs::copy(DIVISI_SOURCE_DIR "/models/tiny-qwen3", copy_);
  }
  void TearDown() override { fs::remove_all(copy_); }

  std::string Fingerprint() const { return ModelFingerprint(*Checkpoint::Open(copy_)); }

  // Turns over a byte `at` of the weights' way through their file.
  void Change(double at) const {
    const fs::path weights = copy_ / "model.safetensors";
    std::fstream file(weights, std::ios::in | std::ios::out | std::ios::binary);
    const auto place =
        static_cast<std::streamoff>(static_cast<double>(fs::file_size(weights)) * at);
    file.seekg(place);
    const char byte = static_cast<char>(file.get());
    file.seekp(place);
    file.put(static_cast<char>(byte ^ 1));
  }

  const fs::path copy_ =
      fs::temp_directory_path() / Format("divisi-model-fingerprint-{}", getpid());
};

TEST_F(ModelFingerprintTest, IsTheSameOfTheSameWeights) {
  EXPECT_EQ(Fingerprint(),
            ModelFingerprint(*Checkpoint::Open(DIVISI_SOURCE_DIR "/models/tiny-qwen3")));
}

// Wherever it lies: what was computed with other weights would be taken for these ones'.
TEST_F(ModelFingerprintTest, DependsOnEveryWeight) {
  for (const double at : {0.05, 0.11, 0.23, 0.37, 0.59, 0.83, 0.97}) {
    const std::string before = Fingerprint();
    Change(at);
    EXPECT_NE(Fingerprint(), before) << "at " << at;
  }
}

TEST_F(ModelFingerprintTest, DependsOnTheConfig) {
  const std::string before = Fingerprint();
  std::ofstream(copy_ / "config.json", std::ios::app) << " ";
  EXPECT_NE(Fingerprint(), before);
}

}  // namespace
}  // namespace divisi
