// Python's arithmetic and slicing on a chat template's values.
#pragma once

#include "divisi/model/jinja_ast.h"

namespace divisi {

// Errors: kInvalidArgument for types that the operator does not take and division by zero;
// kOutOfRange for integers beyond 64 bits and an ended budget; kUnimplemented for '%' on text.
// Requires: an arithmetic operator.
Result<JinjaValue> Arithmetic(JinjaOperator op, const JinjaValue& a, const JinjaValue& b,
                              JinjaBudget& budget);
Result<JinjaValue> Negated(const JinjaValue& value);

// Requires: a comparison, `in` or `not in`.
Result<bool> Compare(JinjaOperator op, const JinjaValue& a, const JinjaValue& b,
                     JinjaBudget& budget);

// value[start:stop:step], each bound an integer or None, over text, lists and tuples.
Result<JinjaValue> Sliced(const JinjaValue& value, const JinjaValue& start, const JinjaValue& stop,
                          const JinjaValue& step, JinjaBudget& budget);

}  // namespace divisi
