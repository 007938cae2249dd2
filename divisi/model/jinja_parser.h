// Chat template text to syntax tree.
#pragma once

#include <string_view>

#include "divisi/model/jinja_ast.h"

namespace divisi {

// Errors: kInvalidArgument for broken syntax, kUnimplemented for Jinja outside the subset,
// kOutOfRange for nesting beyond JinjaExpr::kMaxDepth; each with line, column and the construct.
Result<JinjaBlock> ParseJinja(std::string_view source);

}  // namespace divisi
