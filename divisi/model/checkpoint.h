// A Hugging Face checkpoint directory: config.json and tensors in one or several *.safetensors
// files, mapped, never copied. The files are untrusted: every offset is checked before use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "divisi/catalog/model_spec.h"
#include "divisi/core/file.h"

namespace divisi {

// One tensor's bytes in a mapped file: row-major, last dimension contiguous, little-endian.
// bytes need not be aligned to more than one byte.
struct TensorView {
  DataType type = DataType::kBf16;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // As long as shape and type say.
};

// The tensors of one .safetensors image: name -> view into `file`.
// Tensors of types other than DataType's are left out unless something asks for them by name.
// Errors: kDataLoss for a truncated, oversized, overlapping, gapped or lying header or tensor;
// kUnimplemented for a tensor type that Divisi can't hold. The message names the tensor and the
// reason. Source: the safetensors format description (8-byte little-endian header length, JSON
// header, data).
Result<std::map<std::string, TensorView>> ParseSafetensors(std::span<const std::byte> file);

class Checkpoint {
 public:
  // Errors: kNotFound when config.json or the weights are missing (the message lists what a
  // checkpoint directory holds), else those of ParseModelSpec and ParseSafetensors, with the file.
  static Result<Checkpoint> Open(const std::filesystem::path& directory);

  const std::filesystem::path& directory() const { return directory_; }
  const ModelSpec& spec() const { return spec_; }
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }

  // The named tensor. Errors: kNotFound; kDataLoss when its shape is not `shape`.
  Result<TensorView> Get(const std::string& name, std::vector<int64_t> shape) const;

  // Bytes of all tensors.
  Bytes TotalBytes() const;
  // Maps the pages of all files ahead of first use, calling progress(done, total) as it goes.
  void Populate(const std::function<void(Bytes done, Bytes total)>& progress) const;

 private:
  Checkpoint() = default;
  std::filesystem::path directory_;
  ModelSpec spec_;
  std::vector<MappedFile> files_;
  std::map<std::string, TensorView> tensors_;
};

}  // namespace divisi
