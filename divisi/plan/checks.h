// Checks of the numbers that users give to a calculation, so that no formula meets a zero divisor,
// a NaN or a product beyond 64 bits. Names are those by which the user knows the number.
#pragma once

#include <initializer_list>
#include <string_view>

#include "divisi/core/result.h"
#include "divisi/core/units.h"

namespace divisi {

struct Given {
  std::string_view name;
  double value = 0;
};

// Errors: kInvalidArgument, with name and value, for what is not finite or not above zero.
Result<void> RequirePositive(std::initializer_list<Given> numbers);
// Errors: kOutOfRange, with name, value and both ends; NaN too.
Result<void> RequireBetween(Given number, double low, double high);

// Bytes counted in floating point, rounded to a whole byte.
// Errors: kOutOfRange for what is not within 0 .. 2^62.
Result<Bytes> BytesOf(Given bytes);

}  // namespace divisi
