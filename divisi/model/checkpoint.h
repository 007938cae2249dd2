// A Hugging Face checkpoint directory: config.json and tensors in one or several *.safetensors
// files, mapped, never copied. The files are untrusted: every offset is checked before use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "divisi/catalog/model_spec.h"
#include "divisi/core/file.h"
#include "divisi/model/safetensors.h"

namespace divisi {

// Reads directory/config.json.
// Errors: kNotFound, kInvalidArgument, kUnimplemented: those of ParseModelSpec, with the file.
Result<ModelSpec> LoadModelSpec(const std::filesystem::path& directory);

// The spec and the tensors, for as long as this lives. Moving it leaves the views valid. A file
// that someone shortens while it is mapped kills the process (SIGBUS): replace files, don't rewrite
// them.
class Checkpoint {
 public:
  // Opens directory/model.safetensors, or else the shards that
  // directory/model.safetensors.index.json lists. Reads headers only. Errors: kNotFound when
  // config.json, the weights or a listed shard are missing (the message says what a checkpoint
  // directory holds); kInvalidArgument for an index that is malformed or names a file outside the
  // directory; kDataLoss when index and shards disagree; else those of ParseModelSpec and
  // ParseSafetensors, with the file.
  static Result<Checkpoint> Open(const std::filesystem::path& directory);

  const std::filesystem::path& directory() const { return directory_; }
  const ModelSpec& spec() const { return spec_; }
  // Tensors of types that DataType lacks are not among them.
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }
  // Those, by name, with the format's name of their type.
  const std::map<std::string, std::string>& other_types() const { return other_types_; }

  // The named tensor. Errors: kNotFound; kDataLoss when its shape is not `shape`; kUnimplemented
  // when it is of a type that DataType lacks.
  Result<TensorView> Get(const std::string& name, const std::vector<int64_t>& shape) const;

  // Bytes of all tensors that can be got.
  Bytes TotalBytes() const;
  // Maps the pages of all files ahead of first use, calling progress(done, total) as it goes, and
  // at least once. From a warm page cache this takes about 50 ms per GiB.
  void Populate(const std::function<void(Bytes done, Bytes total)>& progress) const;
  // Gives the mapped pages back, once the tensors have been copied; reading them still works.
  void Release() const;

 private:
  Checkpoint() = default;
  Result<void> AddFile(const std::filesystem::path& path);
  Result<void> AddShards(const std::map<std::string, std::string>& shard_of);

  std::filesystem::path directory_;
  ModelSpec spec_;
  std::vector<MappedFile> files_;
  std::map<std::string, TensorView> tensors_;
  std::map<std::string, std::string> other_types_;
};

}  // namespace divisi
