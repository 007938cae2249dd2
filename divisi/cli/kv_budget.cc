#include <algorithm>

#include "divisi/cli/kv_budget.h"

namespace divisi {

Result<int64_t> WantedContext(const ServeOptions& options, const ModelSpec& spec) {
  if (options.max_model_len <= spec.max_positions) {
    return options.max_model_len > 0 ? options.max_model_len : int64_t{spec.max_positions};
  }
  return Error{Code::kOutOfRange,
               Format("--max-model-len {} is beyond the {} positions of the model",
                      options.max_model_len, spec.max_positions)};
}

Result<KvBudget> PlanKvMemory(const ServeOptions& options, const ModelSpec& spec,
                              const KvLayout& layout, Bytes available) {
  ASSIGN_OR_RETURN(const int64_t wanted_len, WantedContext(options, spec));
  const int64_t page_bytes = layout.PageBytes();
  const int64_t pages_per_sequence = PagesFor(wanted_len);

  int64_t pages = 0;
  if (options.kv_memory == "auto") {
    // Half of what is there: the other half is for weights in the page cache and for the rest of
    // the machine. Never more than the running sequences could fill.
    pages = std::min(available.value / 2 / page_bytes, pages_per_sequence * options.max_num_seqs);
  } else {
    ASSIGN_OR_RETURN(const Bytes memory, ParseBytes(options.kv_memory));
    if (memory > available) {
      return Error{Code::kOutOfRange,
                   Format("--kv-memory {} is more than the {} that this machine has available",
                          options.kv_memory, HumanBytes(available))};
    }
    pages = memory.value / page_bytes;
  }
  // One page for the prompt's last token and its first output is the least that can serve.
  const int64_t least = options.max_model_len > 0 ? pages_per_sequence : 1;
  if (pages < least) {
    return Error{
        Code::kOutOfRange,
        Format("KV memory for {} tokens is {}, but --kv-memory {} gives {}; raise it or lower "
               "--max-model-len",
               least * kBlockTokens, HumanBytes(Bytes(least * page_bytes)), options.kv_memory,
               HumanBytes(Bytes(pages * page_bytes)))};
  }
  pages = std::min<int64_t>(pages, INT32_MAX);  // BlockId's range.
  return KvBudget{.pages = pages,
                  .max_model_len = std::min(wanted_len, pages * kBlockTokens),
                  .memory = Bytes(pages * page_bytes)};
}

}  // namespace divisi
