// Writing .safetensors files tensor after tensor, with only a piece in memory at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "divisi/core/file_writer.h"
#include "divisi/core/json.h"
#include "divisi/model/safetensors.h"

namespace divisi {

// A tensor to be written.
struct TensorSlot {
  std::string name;
  DataType type = DataType::kBf16;
  std::vector<int64_t> shape;
  Bytes bytes() const;
};

// The file's first bytes: length and JSON, padded with spaces so that the data start at a multiple
// of 8. Data follow in the order of `slots`. Requires: no name twice.
std::string SafetensorsHeader(std::span<const TensorSlot> slots);

// One file. Visible under its name only after Finish.
class SafetensorsWriter {
 public:
  // Errors of all: those of FileWriter.
  static Result<SafetensorsWriter> Create(const std::filesystem::path& path,
                                          std::span<const TensorSlot> slots);
  // The next bytes of the data; pieces may end anywhere.
  Result<void> Append(std::span<const std::byte> bytes);
  // Requires: as many bytes appended as the slots have.
  Result<void> Finish();

 private:
  SafetensorsWriter(FileWriter file, Bytes left) : file_(std::move(file)), left_(left) {}
  FileWriter file_;
  Bytes left_;
};

// One file of a checkpoint and what goes into it.
struct Shard {
  std::string name;  // "model.safetensors", or "model-00001-of-00003.safetensors"
  std::vector<TensorSlot> slots;
};

// Deals tensors, in order, to shards of at most most_bytes of data each; a larger tensor gets a
// shard to itself. Requires: slots not empty, most_bytes > 0.
std::vector<Shard> DealShards(std::vector<TensorSlot> slots, Bytes most_bytes);

// model.safetensors.index.json of several shards.
Json ShardIndex(std::span<const Shard> shards);

}  // namespace divisi
