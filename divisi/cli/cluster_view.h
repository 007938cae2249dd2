// A gateway's status (serve/cluster_query.h) as `divisi cluster` shows it. A gateway of another
// release may have other keys: each is checked where it is read.
#pragma once

#include <string>

#include "divisi/core/json.h"
#include "divisi/core/result.h"

namespace divisi {

// A line for each worker, and one of the gateway's own. Errors: kUnimplemented, with the first key
// that is missing or of another type: "workers[0].held is missing".
Result<std::string> ClusterText(const Json& status);

// Whether the worker of that name or id drains and has requests left. One that is gone has none.
// Errors: as above.
Result<bool> DrainsStill(const Json& status, const std::string& worker);

}  // namespace divisi
