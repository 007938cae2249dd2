// Values as text: Python's str(), repr() and json.dumps().
#pragma once

#include <string>

#include "divisi/model/jinja_value.h"

namespace divisi {

// What {{ value }} shows. Errors: kOutOfRange when the budget ends; kInvalidArgument for a
// namespace that contains itself.
Result<std::string> Printed(const JinjaValue& value, JinjaBudget& budget);

// Python's repr of a float.
std::string FloatText(double value);

// Python's json.dumps, as the tojson of Hugging Face calls it.
struct JsonStyle {
  bool ascii = false;     // Escape all beyond ASCII.
  bool indented = false;  // A line per item, by `indent`.
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
// Errors: kInvalidArgument for a value that JSON cannot hold (undefined, a function).
Result<std::string> ToJsonText(const JinjaValue& value, const JsonStyle& style,
                               JinjaBudget& budget);

}  // namespace divisi
