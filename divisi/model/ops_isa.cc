// Which instruction sets this machine and its system run.
#include <hwy/targets.h>

#include "divisi/core/check.h"
#include "divisi/core/format.h"
#include "divisi/model/dot_check.h"
#include "divisi/model/ops.h"
#include "divisi/model/ops_kernels.h"

namespace divisi {

const char* IsaName(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
  }
  return "unknown";
}

std::vector<Isa> SupportedIsas() {
  // Highway asks the system too: registers that it does not save count as absent.
  const int64_t targets = hwy::SupportedTargets();
  std::vector<Isa> isas = {Isa::kScalar};
  if ((targets & HWY_AVX2) != 0) isas.push_back(Isa::kAvx2);
  if ((targets & HWY_AVX3) != 0) isas.push_back(Isa::kAvx512);
  if ((targets & HWY_AVX3) != 0 && __builtin_cpu_supports("avx512bf16")) {
    static const bool keeps_rule = KeepsDotRule(kAvx512Bf16Kernels.matmul_bf16_bf16);
    if (keeps_rule) isas.push_back(Isa::kAvx512Bf16);
  }
  return isas;
}

Result<Isa> ChooseIsa(std::string_view name) {
  const std::vector<Isa> supported = SupportedIsas();
  if (name == "auto") return supported.back();
  std::string names;
  for (const Isa isa : supported) {
    if (name == IsaName(isa)) return isa;
    names += Format("{}{}", names.empty() ? "" : ", ", IsaName(isa));
  }
  return Error{Code::kInvalidArgument,
               Format("this machine does not run {}; it runs {}", name, names)};
}

const Kernels& KernelsOf(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return kScalarKernels;
    case Isa::kAvx2:
      return kAvx2Kernels;
    case Isa::kAvx512:
      return kAvx512Kernels;
    case Isa::kAvx512Bf16:
      return kAvx512Bf16Kernels;
  }
  CHECK(false, "isa {}", static_cast<int>(isa));
  return kScalarKernels;
}

}  // namespace divisi
