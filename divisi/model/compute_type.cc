#include "divisi/model/compute_type.h"

#include "divisi/core/check.h"

namespace divisi {

const char* ComputeTypeName(ComputeType type) {
  return DataTypeName(type == ComputeType::kBf16 ? DataType::kBf16 : DataType::kF32);
}

ComputeType ChooseComputeType(std::string_view dtype, DataType stored) {
  if (dtype == "bfloat16") return ComputeType::kBf16;
  if (dtype == "float32") return ComputeType::kF32;
  CHECK(dtype == "auto", "dtype {}", dtype);
  return stored == DataType::kBf16 ? ComputeType::kBf16 : ComputeType::kF32;
}

}  // namespace divisi
