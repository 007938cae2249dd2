#include "divisi/core/units.h"

#include <array>
#include <cmath>

#include "divisi/core/format.h"

namespace divisi {

std::string HumanBytes(Bytes bytes) {
  constexpr std::array kNames = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes.value);
  size_t name = 0;
  while (std::abs(value) >= 1024 && name + 1 < kNames.size()) {
    value /= 1024;
    ++name;
  }
  return name == 0 ? Format("{} B", bytes.value) : Format("{:.4g} {}", value, kNames[name]);
}

std::string HumanSeconds(Seconds seconds) {
  const double value = seconds.value;
  if (std::abs(value) >= 1 || value == 0) return Format("{:.3g} s", value);
  if (std::abs(value) >= 1e-3) return Format("{:.3g} ms", value * 1e3);
  return Format("{:.3g} us", value * 1e6);
}

}  // namespace divisi
