#include "divisi/model/servable.h"

namespace divisi {

Result<void> CheckServable(const ModelSpec& spec) {
  constexpr const char* kServed =
      "served are qwen3, qwen2 (2.5 too) and llama in bfloat16, float16 or float32";
  const auto lacking = [&](std::string_view what) {
    return Error{Code::kUnimplemented,
                 Format("{} {}; it can be inspected and planned with, not served yet: {}",
                        spec.family, what, kServed)};
  };
  if (spec.mla) return lacking("has latent attention (MLA)");
  if (spec.moe) return lacking("is a mixture of experts");
  if (spec.quantised) return lacking(Format("has quantised weights ({})", spec.quantised->type));
  return {};
}

}  // namespace divisi
