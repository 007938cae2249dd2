// From a command's options to a loaded model, its text side and their places in a process: what
// serve, worker and gateway have in common.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "divisi/cli/kv_budget.h"
#include "divisi/cli/serve_options.h"
#include "divisi/core/clock.h"
#include "divisi/core/log.h"
#include "divisi/engine/model_executor.h"
#include "divisi/engine/scheduler.h"
#include "divisi/serve/gateway_prompt.h"
#include "divisi/serve/text_assets.h"

namespace divisi {

// Each client or peer is a descriptor: takes as many as the system lets the process.
void RaiseDescriptorLimit();

// Names that requests may use: the given ones, or the directory's.
std::vector<std::string> ServedNames(const ServeOptions& options);

// What two processes' pages must have in common beside the model: a version of the layout
// (model/kv_pages.h), the element type, layers, heads, tokens and channels.
std::string PageFormat(const KvLayout& layout);

struct ServedModel {
  std::unique_ptr<ModelExecutor> executor;
  KvBudget budget;
  std::string fingerprint;  // Of config and weights (ModelFingerprint)

  SchedulerOptions Scheduling(const ServeOptions& options) const;
};

// Loads with a progress bar; warns of tensors that the model has no place for.
// Errors: those of LoadModelSpec, CheckServable, ChooseIsa, PlanKvMemory and ModelExecutor::Load.
Result<ServedModel> LoadServedModel(const ServeOptions& options, const Clock& clock,
                                    Logger& logger);

// Errors: those of LoadTextAssets.
Result<TextAssets> LoadServedText(const ServeOptions& options, const ModelSpec& spec,
                                  Logger& logger);
// All but backend, max_model_len and limited_by. Refers to text.
GatewayModel ServedGatewayModel(const TextAssets& text, const ModelSpec& spec);

// The flag that holds the context below the model's own; empty: none does.
const char* LimitingFlag(const ServeOptions& options, const KvBudget& budget,
                         const ModelSpec& spec);

// A name for what the weights compute: SHA-256 over config.json, of each tensor in the order of
// their names its name, type and size, and the SHA-256 of each 16 MiB of every tensor. All bytes
// count, since pages outlive the process on disks and in pools: two checkpoints that differ in one
// weight never share any.
std::string ModelFingerprint(const Checkpoint& checkpoint);
// Of tokenizer.json, or of nothing where there is none.
std::string TokenizerFingerprint(const std::filesystem::path& model);

}  // namespace divisi
