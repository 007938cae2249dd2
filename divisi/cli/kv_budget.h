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

// Longest prompt plus output, whatever the memory: --max-model-len, or the model's positions.
// Errors: kOutOfRange for a flag beyond those.
Result<int64_t> WantedContext(const ServeOptions& options, const ModelSpec& spec);

// available: memory that the system can give.
// Errors: kInvalidArgument for an unreadable amount, kOutOfRange where it can't hold one sequence
// of the length asked for (or a single page); those of WantedContext.
Result<KvBudget> PlanKvMemory(const ServeOptions& options, const ModelSpec& spec,
                              const KvLayout& layout, Bytes available);

}  // namespace divisi
