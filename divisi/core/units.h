// Quantities whose unit is their type, so that seconds are never added to bytes.
// Where a bare number must stand (JSON, flags, metrics), its name ends in the unit.
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "divisi/core/result.h"

namespace divisi {

template <typename K, typename Number>
concept ScaleOf = std::integral<K> ||(std::floating_point<K>&& std::floating_point<Number>);

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
  // By a plain number; whole quantities by whole numbers only, or a fraction would be cut to 0.
  template <ScaleOf<Number> K>
  friend constexpr Quantity operator*(Quantity a, K k) {
    return Quantity(a.value * static_cast<Number>(k));
  }
  template <ScaleOf<Number> K>
  friend constexpr Quantity operator*(K k, Quantity a) {
    return Quantity(static_cast<Number>(k) * a.value);
  }
  template <ScaleOf<Number> K>
  friend constexpr Quantity operator/(Quantity a, K k) {
    return Quantity(a.value / static_cast<Number>(k));
  }
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
using BytesPerSecond = Quantity<struct BytesPerSecondTag, double>;
using FlopsPerSecond = Quantity<struct FlopsPerSecondTag, double>;
// Requests, steps or batches per second; which, the name says.
using PerSecond = Quantity<struct PerSecondTag, double>;

constexpr Seconds operator/(Bytes bytes, BytesPerSecond rate) {
  return Seconds(static_cast<double>(bytes.value) / rate.value);
}
constexpr BytesPerSecond operator/(Bytes bytes, Seconds time) {
  return BytesPerSecond(static_cast<double>(bytes.value) / time.value);
}
constexpr PerSecond operator/(BytesPerSecond rate, Bytes bytes) {
  return PerSecond(rate.value / static_cast<double>(bytes.value));
}
constexpr BytesPerSecond operator*(Bytes bytes, PerSecond rate) {
  return BytesPerSecond(static_cast<double>(bytes.value) * rate.value);
}
constexpr Seconds operator/(Flops flops, FlopsPerSecond rate) {
  return Seconds(flops.value / rate.value);
}
// The fraction of the time that work of `time` each takes at this rate.
constexpr double operator*(PerSecond rate, Seconds time) { return rate.value * time.value; }
constexpr PerSecond Rate(Seconds time_of_each) { return PerSecond(1 / time_of_each.value); }
// Rounded to a whole byte.
constexpr Bytes Scale(Bytes bytes, double factor) {
  return Bytes(static_cast<int64_t>(static_cast<double>(bytes.value) * factor + 0.5));
}

// "1.13 GiB", "512 B": binary prefixes, three significant digits.
std::string HumanBytes(Bytes bytes);
// "12.3 ms", "4.56 s".
std::string HumanSeconds(Seconds seconds);

// "4.55", "1040", "0.00278": three significant digits, whole from 1000 up; an exponent only from
// ten million up or below a ten thousandth.
std::string HumanNumber(double value);

// "133.6 TFLOP": decimal prefixes.
std::string HumanFlops(Flops flops);
// "25 GB/s", "312 TFLOP/s": decimal prefixes, as the field writes rates.
std::string HumanRate(BytesPerSecond rate);
std::string HumanRate(FlopsPerSecond rate);

// Reads "1.125 GiB", "512MB", "4096": a number that is not negative and a unit, B where none is
// given; decimal (kB, MB, GB, TB) and binary (KiB, MiB, GiB, TiB) prefixes in any case.
// Errors: kInvalidArgument, with the text and an example.
Result<Bytes> ParseBytes(std::string_view text);

// Reads a number that is not negative and its unit, which must be given: "25 GB/s", "200 Gbit/s"
// (an eighth of it in bytes), "312 TFLOP/s", "10 s", "5 us", "1.5 h". Prefixes of bytes may be
// binary. The case of a unit's letters does not matter, but bits are written out ("bit").
// Errors: kInvalidArgument, with the text, the units that are known and an example.
Result<BytesPerSecond> ParseBytesPerSecond(std::string_view text);
Result<FlopsPerSecond> ParseFlopsPerSecond(std::string_view text);
Result<Seconds> ParseSeconds(std::string_view text);

}  // namespace divisi
