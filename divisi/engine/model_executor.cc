#include "divisi/engine/model_executor.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "divisi/core/thread_pool.h"
#include "divisi/kv/layer_gate.h"

namespace divisi {
namespace {

// For one layer. Who fills the pages ends a load far earlier, by its own deadline; this bounds the
// step where that fails.
constexpr Seconds kMostAtGate{30};

// What a row of logits is for.
struct RowUse {
  enum class Kind { kNothing, kSample, kScore };
  Kind kind = Kind::kNothing;
  size_t slice = 0;
  TokenId scored = 0;  // kScore
  SampledToken* out = nullptr;
  bool failed = false;  // No token was possible.
};

// Tokens of the slice whose next token is in the prompt and is to be scored.
int64_t ScoredTokens(const StepSlice& slice) {
  const Request& request = slice.sequence->request;
  if (request.prompt_logprobs < 0) return 0;
  const auto last = static_cast<int64_t>(request.prompt.size()) - 1;
  return std::clamp<int64_t>(last - slice.start, 0, slice.count);
}

ForwardSequence ToForward(const StepSlice& slice) {
  const int64_t sampled_rows = slice.sample ? 1 : 0;
  return {
      .tokens = std::span(slice.sequence->tokens)
                    .subspan(static_cast<size_t>(slice.start), static_cast<size_t>(slice.count)),
      .start = slice.start,
      .pages = slice.blocks,
      .logits_rows = ScoredTokens(slice) > 0 ? slice.count : sampled_rows};
}

void CheckSlice(const StepSlice& slice) {
  const auto tokens = static_cast<int64_t>(slice.sequence->tokens.size());
  const int64_t end = slice.start + slice.count;
  CHECK(slice.count > 0 && end <= tokens, "slice {}..{} of {} tokens", slice.start, end, tokens);
  CHECK(!slice.sample || end == tokens, "sampling at {} of {} tokens", end, tokens);
}

// One use per row of logits, in the order of rows; makes room in the results.
std::vector<RowUse> PlanRows(const StepPlan& plan, std::span<const ForwardSequence> batch,
                             std::vector<SliceResult>& results) {
  std::vector<RowUse> uses;
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    const StepSlice& slice = plan.slices[i];
    SliceResult& result = results[i];
    result.prompt_scores.resize(static_cast<size_t>(ScoredTokens(slice)));
    if (slice.sample) result.sampled.emplace();
    for (int64_t row = slice.count - batch[i].logits_rows; row < slice.count; ++row) {
      const auto index = static_cast<size_t>(row);
      if (index < result.prompt_scores.size()) {
        const TokenId next = slice.sequence->tokens[static_cast<size_t>(slice.start + row + 1)];
        uses.push_back({.kind = RowUse::Kind::kScore,
                        .slice = i,
                        .scored = next,
                        .out = &result.prompt_scores[index]});
      } else if (slice.sample && row + 1 == slice.count) {
        uses.push_back({.kind = RowUse::Kind::kSample, .slice = i, .out = &*result.sampled});
      } else {
        uses.push_back({});  // Computed again after a preemption; its token is known.
      }
    }
  }
  return uses;
}

void UseRow(RowUse& use, const StepPlan& plan, std::span<const float> logits) {
  if (use.kind == RowUse::Kind::kNothing) return;
  const Sequence& sequence = *plan.slices[use.slice].sequence;
  std::optional<SampledToken> token =
      use.kind == RowUse::Kind::kScore
          ? ScoreToken(logits, use.scored, sequence.request.prompt_logprobs)
          : SampleToken(logits, sequence.tokens, sequence.request.prompt.size(),
                        sequence.request.sampling);
  use.failed = !token.has_value();
  if (token) *use.out = *std::move(token);
}

// A slice whose gate fails goes on with whatever its pages hold: its rows touch no other's.
Transformer::LayerHook WaitAtGates(const StepPlan& plan, std::vector<SliceResult>& results) {
  if (std::ranges::none_of(plan.slices, [](const StepSlice& s) { return s.gate != nullptr; })) {
    return {};
  }
  return [&plan, &results](int layer) {
    for (size_t i = 0; i < plan.slices.size(); ++i) {
      LayerGate* gate = plan.slices[i].gate;
      if (gate == nullptr || results[i].lost) continue;
      results[i].lost = !gate->Wait(layer, kMostAtGate);
    }
  };
}

Error NoNumbers(const StepSlice& slice) {
  return {Code::kInternal,
          Format("the model's output is no numbers (at tokens {} to {}); check its weights, or "
                 "compute with --dtype float32",
                 slice.start, slice.start + slice.count - 1)};
}

Result<int64_t> ChooseLength(const ModelSpec& spec, int64_t wanted) {
  if (wanted == 0) return int64_t{spec.max_positions};
  if (wanted > 0 && wanted <= spec.max_positions) return wanted;
  return Error{.code = Code::kInvalidArgument,
               .message = Format("max_model_len is {}; the model has {} positions", wanted,
                                 spec.max_positions)};
}

}  // namespace

int64_t PagesThatFit(const KvLayout& layout, Bytes memory) {
  return std::min<int64_t>(memory.value / layout.PageBytes(), std::numeric_limits<BlockId>::max());
}

struct ModelExecutor::State {
  State(Checkpoint opened, int threads, Isa isa)
      : checkpoint(std::move(opened)), pool(threads), ops(isa, pool) {}

  Checkpoint checkpoint;
  ThreadPool pool;
  Ops ops;
  std::optional<Transformer> model;  // Set by Load, always there after it.
  std::optional<KvPages> pages;
  LoadTimes load_times;
  int64_t rows_per_part = 1;  // Rows of logits computed at once.

  Result<void> MakePages(Bytes memory);
  Result<void> BringWeights(const Options& options);
  void WarmUp();
};

Result<void> ModelExecutor::State::BringWeights(const Options& options) {
  std::function<void(Bytes, Bytes)> progress = options.progress;
  if (!progress) progress = [](Bytes, Bytes) {};
  if (!options.copy_weights) {
    checkpoint.Populate(progress);
    return {};
  }
  RETURN_IF_ERROR(model->CopyWeights(pool, progress));
  checkpoint.Release();
  return {};
}

Result<void> ModelExecutor::State::MakePages(Bytes memory) {
  const KvLayout layout = model->kv_layout();
  const int64_t fitting = PagesThatFit(layout, memory);
  const int64_t needed = PagesFor(model->max_positions());
  if (fitting < needed) {
    return Error{
        .code = Code::kInvalidArgument,
        .message = Format("KV memory of {} holds {} tokens, less than one sequence of {} "
                          "({}): give more, or set a smaller max_model_len",
                          HumanBytes(memory), fitting * kBlockTokens, model->max_positions(),
                          HumanBytes(Bytes(needed * layout.PageBytes())))};
  }
  ASSIGN_OR_RETURN(pages, KvPages::Create(layout, fitting));
  return {};
}

void ModelExecutor::State::WarmUp() {
  // One token reads every weight once, at the pace of memory; more would only compute longer.
  const TokenId token = 0;
  const BlockId page = 0;
  const ForwardSequence sequence{.tokens = {&token, 1}, .pages = {&page, 1}};
  model->Forward({&sequence, 1}, *pages, ops);
}

ModelExecutor::ModelExecutor(std::unique_ptr<State> state) : state_(std::move(state)) {}
ModelExecutor::~ModelExecutor() = default;

Result<std::unique_ptr<ModelExecutor>> ModelExecutor::Load(const Options& options,
                                                           const Clock& clock) {
  CHECK(options.threads >= 1, "threads {}", options.threads);
  const Seconds start = clock.Now();
  ASSIGN_OR_RETURN(const Isa isa, ChooseIsa(options.isa ? IsaName(*options.isa) : "auto"));
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(options.directory));
  ASSIGN_OR_RETURN(const int64_t length, ChooseLength(checkpoint.spec(), options.max_model_len));
  auto state = std::make_unique<State>(std::move(checkpoint), options.threads, isa);
  ASSIGN_OR_RETURN(state->model, Transformer::Load(state->checkpoint, options.compute, length));
  RETURN_IF_ERROR(state->MakePages(options.kv_memory));
  const int64_t row_bytes =
      int64_t{state->model->spec().vocab} * static_cast<int64_t>(sizeof(float));
  state->rows_per_part = std::max<int64_t>(1, options.logits_memory.value / row_bytes);
  const Seconds opened = clock.Now();
  RETURN_IF_ERROR(state->BringWeights(options));
  const Seconds mapped = clock.Now();
  state->WarmUp();
  state->load_times = {
      .open = opened - start, .map = mapped - opened, .warm_up = clock.Now() - mapped};
  return std::unique_ptr<ModelExecutor>(new ModelExecutor(std::move(state)));
}

std::vector<SliceResult> ModelExecutor::Execute(const StepPlan& plan) {
  State& s = *state_;
  std::vector<ForwardSequence> batch;
  for (const StepSlice& slice : plan.slices) {
    CheckSlice(slice);
    batch.push_back(ToForward(slice));
  }
  std::vector<SliceResult> results(plan.slices.size());
  std::vector<RowUse> uses = PlanRows(plan, batch, results);
  const int64_t rows = s.model->Run(batch, *s.pages, s.ops, WaitAtGates(plan, results));
  CHECK(rows == static_cast<int64_t>(uses.size()), "{} rows, {} uses", rows, uses.size());

  const auto vocab = static_cast<size_t>(s.model->spec().vocab);
  for (int64_t first = 0; first < rows; first += s.rows_per_part) {
    const int64_t count = std::min(s.rows_per_part, rows - first);
    const std::span<const float> logits = s.model->Logits(first, count, s.ops);
    s.pool.Run(count, [&](int64_t task, int) {
      UseRow(uses[static_cast<size_t>(first + task)], plan,
             logits.subspan(static_cast<size_t>(task) * vocab, vocab));
    });
  }
  for (const RowUse& use : uses) {
    if (use.failed && !results[use.slice].lost)
      results[use.slice].failure = NoNumbers(plan.slices[use.slice]);
  }
  return results;
}

const ModelSpec& ModelExecutor::spec() const { return state_->model->spec(); }
const Checkpoint& ModelExecutor::checkpoint() const { return state_->checkpoint; }
Isa ModelExecutor::isa() const { return state_->ops.isa(); }
int ModelExecutor::threads() const { return state_->pool.threads(); }
int64_t ModelExecutor::max_model_len() const { return state_->model->max_positions(); }
KvPages& ModelExecutor::pages() { return *state_->pages; }
const ModelExecutor::LoadTimes& ModelExecutor::load_times() const { return state_->load_times; }

}  // namespace divisi
