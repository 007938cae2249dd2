#include "divisi/core/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <span>

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

std::string WithDecimalPrefix(double value, const char* unit) {
  constexpr std::array kPrefixes = {"", "k", "M", "G", "T", "P", "E"};
  size_t prefix = 0;
  while (std::abs(value) >= 1000 && prefix + 1 < kPrefixes.size()) {
    value /= 1000;
    ++prefix;
  }
  return Format("{:.4g} {}{}", value, kPrefixes[prefix], unit);
}

struct Unit {
  std::string_view name;  // Lower case.
  double scale;
};
constexpr Unit kByteUnits[] = {
    {"", 1},      {"b", 1},        {"kb", 1e3},     {"mb", 1e6},     {"gb", 1e9},
    {"tb", 1e12}, {"kib", 0x1p10}, {"mib", 0x1p20}, {"gib", 0x1p30}, {"tib", 0x1p40},
};
constexpr Unit kByteRateUnits[] = {
    {"b/s", 1},           {"kb/s", 1e3},       {"mb/s", 1e6},       {"gb/s", 1e9},
    {"tb/s", 1e12},       {"kib/s", 0x1p10},   {"mib/s", 0x1p20},   {"gib/s", 0x1p30},
    {"tib/s", 0x1p40},    {"kbit/s", 1e3 / 8}, {"mbit/s", 1e6 / 8}, {"gbit/s", 1e9 / 8},
    {"tbit/s", 1e12 / 8}, {"kbps", 1e3 / 8},   {"mbps", 1e6 / 8},   {"gbps", 1e9 / 8},
    {"tbps", 1e12 / 8},
};
constexpr Unit kFlopRateUnits[] = {
    {"flop/s", 1},   {"mflop/s", 1e6}, {"gflop/s", 1e9}, {"tflop/s", 1e12}, {"pflop/s", 1e15},
    {"mflops", 1e6}, {"gflops", 1e9},  {"tflops", 1e12}, {"pflops", 1e15},
};
constexpr Unit kTimeUnits[] = {
    {"ns", 1e-9}, {"us", 1e-6}, {"\xc2\xb5s", 1e-6}, {"\xce\xbcs", 1e-6}, {"ms", 1e-3},
    {"s", 1},     {"min", 60},  {"h", 3600},         {"d", 86400},
};

// A number that is not negative, in the scale of the unit after it; NaN where there is none or the
// unit is unknown.
double ParseWithUnit(std::string_view text, std::span<const Unit> units) {
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || !(number >= 0)) return std::nan("");
  std::string unit;
  for (const char c : text.substr(static_cast<size_t>(end - text.data()))) {
    if (c != ' ') unit += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  for (const Unit& known : units) {
    if (unit == known.name) return number * known.scale;
  }
  return std::nan("");
}

Error NotA(std::string_view what, std::string_view text, std::string_view example) {
  return {Code::kInvalidArgument,
          Format("'{}' is not {}; write for example {}", text, what, example)};
}

}  // namespace

std::string HumanNumber(double value) {
  const double size = std::abs(value);
  return size >= 999.5 && size < 1e7 ? Format("{:.0f}", value) : Format("{:.3g}", value);
}

std::string HumanFlops(Flops flops) { return WithDecimalPrefix(flops.value, "FLOP"); }
std::string HumanRate(BytesPerSecond rate) { return WithDecimalPrefix(rate.value, "B/s"); }
std::string HumanRate(FlopsPerSecond rate) { return WithDecimalPrefix(rate.value, "FLOP/s"); }

Result<Bytes> ParseBytes(std::string_view text) {
  const double bytes = ParseWithUnit(text, kByteUnits);
  if (!(bytes < 0x1p62)) return NotA("an amount of memory", text, "4GiB or 512 MB");
  return Bytes(std::llround(bytes));
}

Result<BytesPerSecond> ParseBytesPerSecond(std::string_view text) {
  const double rate = ParseWithUnit(text, kByteRateUnits);
  if (!std::isfinite(rate)) return NotA("a bandwidth with its unit", text, "25 GB/s or 200 Gbit/s");
  return BytesPerSecond(rate);
}

Result<FlopsPerSecond> ParseFlopsPerSecond(std::string_view text) {
  const double rate = ParseWithUnit(text, kFlopRateUnits);
  if (!std::isfinite(rate)) {
    return NotA("a computing rate with its unit", text, "312 TFLOP/s or 1.8 TFLOP/s");
  }
  return FlopsPerSecond(rate);
}

Result<Seconds> ParseSeconds(std::string_view text) {
  const double time = ParseWithUnit(text, kTimeUnits);
  if (!std::isfinite(time)) return NotA("a time with its unit", text, "10 s, 5 us or 1.5 h");
  return Seconds(time);
}

}  // namespace divisi
