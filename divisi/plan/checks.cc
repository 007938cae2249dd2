#include "divisi/plan/checks.h"

#include <cmath>

#include "divisi/core/format.h"

namespace divisi {

Result<void> RequirePositive(std::initializer_list<Given> numbers) {
  for (const Given& number : numbers) {
    if (std::isfinite(number.value) && number.value > 0) continue;
    return Error{Code::kInvalidArgument,
                 Format("{} is {}; it must be a finite number above 0", number.name, number.value)};
  }
  return {};
}

Result<void> RequireBetween(Given number, double low, double high) {
  if (number.value >= low && number.value <= high) return {};
  return Error{Code::kOutOfRange, Format("{} is {}; it must be within {} and {}", number.name,
                                         number.value, low, high)};
}

Result<Bytes> BytesOf(Given bytes) {
  if (bytes.value >= 0 && bytes.value <= 0x1p62) return Bytes(std::llround(bytes.value));
  return Error{Code::kOutOfRange,
               Format("{} would be {:.4g} bytes; more than 2^62 cannot be counted, so make the "
                      "counts smaller",
                      bytes.name, bytes.value)};
}

}  // namespace divisi
