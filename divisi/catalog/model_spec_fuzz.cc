// ParseModelSpec on any text: it refuses it or gives a spec within its documented bounds.
#include <string_view>

#include "divisi/catalog/model_spec.h"

namespace divisi {
namespace {

void CheckSpec(const ModelSpec& spec) {
  CHECK(spec.layers > 0 && spec.hidden > 0 && spec.intermediate > 0 && spec.vocab > 0);
  CHECK(spec.kv_heads > 0 && spec.heads % spec.kv_heads == 0);
  CHECK(spec.head_dim > 0 && (spec.mla ? spec.mla->rope_dim : spec.head_dim) % 2 == 0);
  CHECK(spec.ActiveParameters() > 0 && spec.ActiveParameters() <= spec.Parameters());
  if (spec.moe) {
    CHECK(spec.moe->experts_per_token > 0 && spec.moe->experts_per_token <= spec.moe->experts);
    CHECK(spec.moe->layers + static_cast<int>(spec.moe->dense_layers.size()) == spec.layers);
  }
  CHECK(spec.max_positions > 0);
  CHECK(spec.norm_eps > 0 && spec.rope_theta > 0);
  CHECK(spec.rope_scaling.factor >= 1);
  CHECK(spec.Parameters() > 0);
  CHECK(spec.KvBytesPerToken(DataType::kF32) == 2 * spec.KvBytesPerToken(DataType::kBf16));
  for (const int id : spec.eos_token_ids) CHECK(id >= 0 && id < spec.vocab);
}

}  // namespace
}  // namespace divisi

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto json = divisi::Json::Parse({reinterpret_cast<const char*>(data), size});
  if (!json) return 0;
  const auto spec = divisi::ParseModelSpec(*json);
  if (spec) {
    divisi::CheckSpec(*spec);
  } else {
    CHECK(!spec.error().message.empty() && spec.error().message.size() < 2000);
  }
  return 0;
}
