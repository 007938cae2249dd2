// Quantities whose unit is their type, so that seconds are never added to bytes.
// Where a bare number must stand (JSON, flags, metrics), its name ends in the unit.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "divisi/core/result.h"

namespace divisi {

template <typename Tag, typename Number>
struct Quantity {
  Number value{};

  constexpr Quantity() = default;
  constexpr explicit Quantity(Number v) : value(v) {}

  friend constexpr auto operator<=>(Quantity, Quantity) = default;
  friend constexpr Quantity operator+(Quantity a, Quantity b) {
    return Quantity(a.value + b.value);
  }
  friend constexpr Quantity operator-(Quantity a, Quantity b) {
    return Quantity(a.value - b.value);
  }
  friend constexpr Quantity operator*(Quantity a, Number k) { return Quantity(a.value * k); }
  friend constexpr Quantity operator*(Number k, Quantity a) { return Quantity(a.value * k); }
  friend constexpr Quantity operator/(Quantity a, Number k) { return Quantity(a.value / k); }
  // The ratio of two like quantities is a plain number.
  friend constexpr double operator/(Quantity a, Quantity b) {
    return static_cast<double>(a.value) / static_cast<double>(b.value);
  }
  constexpr Quantity& operator+=(Quantity other) {
    value += other.value;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    value -= other.value;
    return *this;
  }
};

using Bytes = Quantity<struct BytesTag, int64_t>;
using Seconds = Quantity<struct SecondsTag, double>;
using Flops = Quantity<struct FlopsTag, double>;
using Tokens = Quantity<struct TokensTag, int64_t>;

// "1.13 GiB", "512 B": binary prefixes, three significant digits.
std::string HumanBytes(Bytes bytes);
// "12.3 ms", "4.56 s".
std::string HumanSeconds(Seconds seconds);

// Reads "1.125 GiB", "512MB", "4096": a number that is not negative and a unit, B where none is
// given; decimal (kB, MB, GB, TB) and binary (KiB, MiB, GiB, TiB) prefixes in any case.
// Errors: kInvalidArgument, with the text and an example.
Result<Bytes> ParseBytes(std::string_view text);

}  // namespace divisi
