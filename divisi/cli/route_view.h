// A gateway's choices of workers (serve/route_query.h) as `divisi explain-route` shows them.
#pragma once

#include <string>

#include "divisi/core/json.h"
#include "divisi/core/result.h"

namespace divisi {

// Each choice: what it was made of, and a line for each candidate, the chosen one first. Errors:
// kUnimplemented, with the first key that is missing or of another type.
Result<std::string> RoutesText(const Json& answer);

}  // namespace divisi
