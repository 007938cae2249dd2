#include "divisi/cli/weight_memory.h"

namespace divisi {

bool ShouldCopyWeights(const std::string& choice, Bytes weights, Bytes kv, Bytes available) {
  if (choice != "auto") return choice == "copied";
  constexpr Bytes kWorthwhile(int64_t{64} << 20);
  return weights >= kWorthwhile && 2 * weights.value + kv.value <= available.value;
}

}  // namespace divisi
