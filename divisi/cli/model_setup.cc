#include "divisi/cli/model_setup.h"

#include <sys/resource.h>

#include <algorithm>
#include <set>
#include <thread>

#include "divisi/cli/progress.h"
#include "divisi/cli/weight_memory.h"
#include "divisi/core/file.h"
#include "divisi/core/format.h"
#include "divisi/core/process.h"
#include "divisi/core/thread_pool.h"
#include "divisi/kv/sha256.h"
#include "divisi/model/model_tensors.h"
#include "divisi/model/servable.h"

namespace divisi {
namespace {

// Tensors that the model has no place for: a config that does not match its weights, or parts that
// this family does not use. Not an error, since checkpoints carry such, but never silent.
void WarnOfUnusedTensors(const Checkpoint& checkpoint, Logger& logger) {
  std::set<std::string> used = {"lm_head.weight"};  // Some store it though it is tied.
  for (ModelTensor& tensor : ModelTensors(checkpoint.spec())) {
    if (tensor.name.starts_with("model.")) used.insert(tensor.name.substr(6));  // Base models.
    used.insert(std::move(tensor.name));
  }
  constexpr size_t kNamed = 3;
  size_t unused = 0;
  std::string names;
  for (const auto& [name, view] : checkpoint.tensors()) {
    if (used.contains(name)) continue;
    if (++unused <= kNamed) names += Format("{}{}", names.empty() ? "" : ", ", name);
  }
  if (unused == 0) return;
  logger.Log(LogLevel::kWarning, "tensors without a place in the model",
             {{"count", static_cast<int64_t>(unused)},
              {"first", names},
              {"remedy", "check that config.json belongs to these weights"}});
}

}  // namespace

void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::vector<std::string> ServedNames(const ServeOptions& options) {
  if (!options.served_names.empty()) return options.served_names;
  std::error_code error;  // Without a working directory the path as given has to do.
  std::filesystem::path full = std::filesystem::absolute(options.model, error);
  if (error) full = options.model;
  full = full.lexically_normal();
  return {full.has_filename() ? full.filename().string() : full.parent_path().filename().string()};
}

const char* LimitingFlag(const ServeOptions& options, const KvBudget& budget,
                         const ModelSpec& spec) {
  if (budget.max_model_len >= spec.max_positions) return "";
  return options.max_model_len > 0 ? "--max-model-len" : "--kv-memory";
}

std::string ModelFingerprint(const Checkpoint& checkpoint) {
  constexpr size_t kPart = size_t{16} << 20;
  Sha256 hash;
  const auto config = ReadFile(checkpoint.directory() / "config.json", size_t{1} << 20);
  if (config) hash.Add(std::as_bytes(std::span(*config)));
  std::vector<std::span<const std::byte>> parts;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const std::string head =
        Format("{} {} {};", name, static_cast<int>(tensor.type), tensor.bytes.size());
    hash.Add(std::as_bytes(std::span(head)));
    for (size_t at = 0; at < tensor.bytes.size(); at += kPart) {
      parts.push_back(tensor.bytes.subspan(at, std::min(kPart, tensor.bytes.size() - at)));
    }
  }
  std::vector<Sha256::Digest> digests(parts.size());
  ThreadPool pool(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
  pool.Run(static_cast<int64_t>(parts.size()), [&](int64_t task, int) {
    Sha256 part;
    part.Add(parts[static_cast<size_t>(task)]);
    digests[static_cast<size_t>(task)] = part.Finish();
  });
  for (const Sha256::Digest& digest : digests) hash.Add(std::as_bytes(std::span(digest)));
  return hash.FinishHex();
}

std::string TokenizerFingerprint(const std::filesystem::path& model) {
  constexpr size_t kMostBytes = size_t{256} << 20;
  Sha256 hash;
  if (const auto text = ReadFile(model / "tokenizer.json", kMostBytes)) {
    hash.Add(std::as_bytes(std::span(*text)));
  }
  return hash.FinishHex();
}

std::string PageFormat(const KvLayout& layout) {
  return Format("1 {} {}x{}x{}x{}", ComputeTypeName(layout.type), layout.layers, layout.kv_heads,
                kBlockTokens, layout.head_dim);
}

SchedulerOptions ServedModel::Scheduling(const ServeOptions& options) const {
  return {.max_sequences = options.max_num_seqs,
          .max_batched_tokens = options.max_num_batched_tokens,
          .max_model_len = budget.max_model_len,
          .max_waiting = options.max_waiting,
          .blocks = budget.pages,
          .share_prefixes = options.share_prefixes,
          .model_fingerprint = {fingerprint.begin(), fingerprint.end()},
          .page_format = PageFormat(executor->pages().layout()),
          .report_pages = options.HasTiers(),
          .vocab = executor->checkpoint().spec().vocab};
}

Result<ServedModel> LoadServedModel(const ServeOptions& options, const Clock& clock,
                                    Logger& logger) {
  ASSIGN_OR_RETURN(const ModelSpec spec, LoadModelSpec(options.model));
  RETURN_IF_ERROR(CheckServable(spec));
  const ComputeType compute = ChooseComputeType(options.dtype, spec.stored_type);
  ASSIGN_OR_RETURN(const Isa isa, ChooseIsa(options.isa));
  const KvLayout layout{
      .layers = spec.layers, .kv_heads = spec.kv_heads, .head_dim = spec.head_dim, .type = compute};
  const Bytes available = AvailableMemory();
  const Bytes weights(spec.Parameters() * ElementBytes(spec.stored_type));
  ServedModel model;
  ASSIGN_OR_RETURN(model.budget, PlanKvMemory(options, spec, layout, available));
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  ProgressBar bar("loading");
  ASSIGN_OR_RETURN(
      model.executor,
      ModelExecutor::Load({.directory = options.model,
                           .compute = compute,
                           .threads = options.threads > 0 ? options.threads : std::max(1, cores),
                           .isa = isa,
                           .max_model_len = model.budget.max_model_len,
                           .kv_memory = model.budget.memory,
                           .copy_weights = ShouldCopyWeights(options.weights, weights,
                                                             model.budget.memory, available),
                           .progress = [&](Bytes done, Bytes total) { bar.Show(done, total); }},
                          clock));
  WarnOfUnusedTensors(model.executor->checkpoint(), logger);
  model.fingerprint = ModelFingerprint(model.executor->checkpoint());
  return model;
}

Result<TextAssets> LoadServedText(const ServeOptions& options, const ModelSpec& spec,
                                  Logger& logger) {
  ASSIGN_OR_RETURN(TextAssets text, LoadTextAssets(options.model, spec, options.chat_template));
  if (!text.chat_template) {
    logger.Log(LogLevel::kWarning, "no chat", {{"reason", text.no_template_reason}});
  }
  return text;
}

GatewayModel ServedGatewayModel(const TextAssets& text, const ModelSpec& spec) {
  GatewayModel model{.tokenizer = &text.tokenizer,
                     .no_chat_reason = text.no_template_reason,
                     .template_variables = text.template_variables,
                     .defaults = ParseGenerationDefaults(text.generation_config),
                     .eos_token_ids = text.eos_token_ids,
                     .vocab_size = spec.vocab};
  if (text.chat_template) {
    model.render_chat = [&text](const Json& variables, double now_unix_seconds) {
      return text.chat_template->Render(variables, now_unix_seconds);
    };
  }
  return model;
}

}  // namespace divisi
