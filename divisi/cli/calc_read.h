// Figures out of a calculation's JSON, for the tests that hold them against the specification's.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "divisi/core/json.h"

namespace divisi {

inline double NumberAt(const Json& object, const std::string& key) {
  const Json* found = object.Find(key);
  if (found != nullptr && found->is_number()) return found->as_double();
  ADD_FAILURE() << "no number " << key;
  return std::nan("");
}

// "read_seconds", or "table/row/column": a figure of the JSON that users get.
inline double Read(const Json& json, const std::string& where) {
  const size_t slash = where.find('/');
  if (slash == std::string::npos) return NumberAt(*json.Find("figures"), where);
  const size_t last = where.rfind('/');
  const Json* rows = json.Find("tables")->Find(where.substr(0, slash));
  for (const Json& row : rows == nullptr ? Json::Array{} : rows->as_array()) {
    if (row.Find("name")->as_string() == where.substr(slash + 1, last - slash - 1)) {
      return NumberAt(row, where.substr(last + 1));
    }
  }
  ADD_FAILURE() << "no row for " << where;
  return std::nan("");
}

}  // namespace divisi
