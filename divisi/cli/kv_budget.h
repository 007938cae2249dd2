// How much memory a server keeps for keys and values.
#pragma once

#include "divisi/catalog/model_spec.h"
#include "divisi/cli/serve_options.h"
#include "divisi/core/result.h"
#include "divisi/core/units.h"
#include "divisi/model/kv_pages.h"

namespace divisi {

// Pages and context that fit the options, the model and the memory.
struct KvBudget {
  int64_t pages = 0;
  int64_t max_model_len = 0;
  Bytes memory;
};

// available: memory that the system can give.
// Errors: kInvalidArgument for an unreadable amount, kOutOfRange where it can't hold one sequence
// of the length asked for (or a single page), or where that length is beyond the model's positions.
Result<KvBudget> PlanKvMemory(const ServeOptions& options, const ModelSpec& spec,
                              const KvLayout& layout, Bytes available);

}  // namespace divisi
