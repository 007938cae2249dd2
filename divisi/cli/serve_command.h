// `divisi serve`: one worker that does all, behind its own gateway.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "divisi/catalog/model_spec.h"
#include "divisi/core/result.h"
#include "divisi/core/units.h"
#include "divisi/model/kv_pages.h"

namespace divisi {

struct ServeOptions {
  std::filesystem::path model;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::vector<std::string> served_names;  // Empty: the directory's name.
  std::string api_key;
  std::filesystem::path chat_template;
  std::string dtype = "auto";
  std::string isa = "auto";
  int threads = 0;  // 0: one per core.
  int64_t max_num_seqs = 256;
  // A step of this many rows is what a running stream waits for at most. A CPU core does some
  // hundred rows a second of a small model, so this is less than accelerators take.
  int64_t max_num_batched_tokens = 512;
  int64_t max_model_len = 0;  // 0: what the model and the KV memory allow.
  int64_t max_waiting = 1024;
  std::string kv_memory = "auto";
  std::string weights = "auto";
  bool share_prefixes = true;
  double drain_seconds = 30;
  bool log_json = false;
  std::string allowed_origin;
};

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
