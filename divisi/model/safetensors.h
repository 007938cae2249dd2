// The .safetensors format: 8 bytes of little-endian header length, a JSON header that gives each
// tensor its type, shape and place, then the tensors' bytes.
// Source: the format's description in its reference repository, huggingface/safetensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "divisi/catalog/model_spec.h"
#include "divisi/core/result.h"

namespace divisi {

// One tensor's bytes in a mapped file: row-major, last dimension contiguous, little-endian.
// bytes need not be aligned to more than one byte.
struct TensorView {
  DataType type = DataType::kBf16;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // As long as shape and type say.
};

// The tensors of one file.
struct Safetensors {
  std::map<std::string, TensorView> tensors;
  // Tensors of types that DataType lacks: name -> the format's name of the type ("I64"). Their
  // place is checked like the others'; their content is out of reach.
  std::map<std::string, std::string> other_types;
};

// The format's own bound of the header, which keeps a hostile one from costing memory without end.
inline constexpr int64_t kMostSafetensorsHeaderBytes = 100'000'000;

// Views into `file`, the whole content of a .safetensors file.
// Errors: kDataLoss for a truncated, oversized, overlapping, gapped or lying header or tensor, and
// for an unknown type. The message names the tensor and the reason.
Result<Safetensors> ParseSafetensors(std::span<const std::byte> file);

// "BF16", "F16", "F32": the format's names.
const char* SafetensorsTypeName(DataType type);

}  // namespace divisi
