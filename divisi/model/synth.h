// Random weights of any supported shape, so that sizes and speeds can be measured without a
// download. The output says nothing, but it is finite: matrices are normal with the deviation that
// training starts from, norms are near 1.
//
// Each element is a pure function of (seed, tensor name, index): threads, shards and the order of
// tensors change nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "divisi/catalog/model_spec.h"
#include "divisi/core/thread_pool.h"
#include "divisi/model/model_tensors.h"

namespace divisi {

// Elements of one distribution, stored in one type.
//
// An element is a 16-bit draw looked up in a table of the normal distribution's quantiles: 65,536
// levels, far finer than bf16, up to 4.3 deviations.
class RandomTensor {
 public:
  struct Distribution {
    float mean = 0;
    float deviation = 1;
  };
  RandomTensor(Distribution distribution, DataType type);

  DataType type() const { return type_; }
  // Writes elements [first, first + out.size() / element bytes) of tensor `name` under `seed`.
  // Requires: first is a multiple of kDrawsPerBlock; whole elements.
  void Fill(uint64_t seed, std::string_view name, int64_t first, std::span<std::byte> out) const;
  // One call of the generator gives this many 16-bit draws.
  static constexpr int64_t kDrawsPerBlock = 8;

 private:
  DataType type_;
  std::vector<std::byte> levels_;  // 65,536 elements of type_.
};

struct SynthOptions {
  uint64_t seed = 0;
  DataType type = DataType::kBf16;
  Bytes most_shard_bytes = Bytes(int64_t{1} << 62);       // All in one file.
  std::function<void(Bytes done, Bytes total)> progress;  // May be empty.
};

// Writes model.safetensors, or shards and their index, into `directory`, which exists. Repeating it
// gives the same files.
// Errors: those of FileWriter.
Result<void> WriteSynthWeights(const ModelSpec& spec, const std::filesystem::path& directory,
                               const SynthOptions& options, ThreadPool& pool);

}  // namespace divisi
