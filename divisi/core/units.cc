#include "divisi/core/units.h"

#include <array>
#include <charconv>
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

namespace {

struct Unit {
  std::string_view name;  // Lower case.
  double bytes;
};
constexpr Unit kUnits[] = {
    {"", 1},      {"b", 1},        {"kb", 1e3},     {"mb", 1e6},     {"gb", 1e9},
    {"tb", 1e12}, {"kib", 0x1p10}, {"mib", 0x1p20}, {"gib", 0x1p30}, {"tib", 0x1p40},
};

}  // namespace

Result<Bytes> ParseBytes(std::string_view text) {
  const Error bad{
      Code::kInvalidArgument,
      Format("'{}' is not an amount of memory; write for example 4GiB or 512 MB", text)};
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || !(number >= 0)) return bad;
  std::string unit;
  for (const char c : text.substr(static_cast<size_t>(end - text.data()))) {
    if (c != ' ') unit += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  for (const Unit& known : kUnits) {
    if (unit != known.name) continue;
    const double bytes = number * known.bytes;
    if (bytes >= 0x1p62) return bad;
    return Bytes(static_cast<int64_t>(bytes));
  }
  return bad;
}

}  // namespace divisi
