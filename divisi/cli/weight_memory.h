// Whether a model's weights are copied to huge pages or used where the files are mapped.
#pragma once

#include <string>

#include "divisi/core/units.h"

namespace divisi {

// choice: "copied", "mapped", or "auto", which copies what a cache does not hold anyway, where
// memory has room for the copy, the files in the page cache and kv beside them.
bool ShouldCopyWeights(const std::string& choice, Bytes weights, Bytes kv, Bytes available);

}  // namespace divisi
