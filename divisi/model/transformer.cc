#include "divisi/model/transformer.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "divisi/model/transformer_weights.h"

namespace divisi {
namespace {

// Memory that grows to the largest step and is used again. Not kept over growth, not initialised.
class Buffer {
 public:
  std::byte* Reserve(int64_t bytes) {
    if (bytes > size_) {
      // A quarter more than asked, so that steps that lengthen one by one don't reallocate each.
      size_ = (bytes + bytes / 4 + kAlignment - 1) / kAlignment * kAlignment;
      data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, size_)));
      CHECK(data_ != nullptr, "no memory for {} bytes of activations", size_);
    }
    return data_.get();
  }

 private:
  static constexpr int64_t kAlignment = 64;  // A cache line; a 512-bit vector.
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  int64_t size_ = 0;
};

// What a step computes in. Each name is one matrix; all have the step's rows.
struct Workspace {
  Buffer residual;           // [T, H] f32
  Buffer normed;             // [T, H]
  Buffer query, key, value;  // [T, A], [T, C], [T, C] f32
  Buffer rotated, attended;  // [T, A]
  Buffer gate, up;           // [T, F] f32
  Buffer activated;          // [T, F]
  Buffer logits;             // [R, V] f32
};

Matrix MatrixIn(Buffer& buffer, int64_t rows, int64_t cols) {
  const int64_t bytes = rows * cols * static_cast<int64_t>(sizeof(float));
  return {.data = reinterpret_cast<float*>(buffer.Reserve(bytes)), .rows = rows, .cols = cols};
}

Activations ActivationsIn(Buffer& buffer, ComputeType type, int64_t rows, int64_t cols) {
  const int64_t bytes = rows * cols * (type == ComputeType::kBf16 ? 2 : 4);
  return {.data = buffer.Reserve(bytes), .type = type, .rows = rows, .cols = cols};
}

// Moves the last `tails[i]` rows of each sequence to the front of a matrix of `row_bytes` rows.
void KeepTails(std::byte* data, int64_t row_bytes, std::span<const SequenceRows> sequences,
               std::span<const int64_t> tails) {
  int64_t kept = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const int64_t from = sequences[i].first_row + sequences[i].rows - tails[i];
    std::memmove(data + kept * row_bytes, data + from * row_bytes,
                 static_cast<size_t>(tails[i] * row_bytes));
    kept += tails[i];
  }
}

}  // namespace

struct Transformer::State {
  ModelSpec spec;
  ComputeType compute = ComputeType::kBf16;
  TransformerWeights weights;
  HugeMemory copies;  // Of the matrices, where they were copied.
  RopeTable rope;
  Workspace workspace;

  // The step being run.
  std::vector<SequenceRows> sequences;
  std::vector<int64_t> tails;  // logits_rows of each
  Matrix residual;             // [T, H]; after the last layer's attention, [R, H]

  void Begin(std::span<const ForwardSequence> batch, Ops& ops);
  void Attend(int layer, KvPages& pages, Ops& ops);
  void Feed(int layer, Ops& ops);
  void Narrow(Activations& rotated);
};

// Lays the sequences' rows out one after another and embeds their tokens.
void Transformer::State::Begin(std::span<const ForwardSequence> batch, Ops& ops) {
  sequences.clear();
  tails.clear();
  std::vector<TokenId> tokens;
  for (const ForwardSequence& run : batch) {
    const auto rows = static_cast<int64_t>(run.tokens.size());
    const int64_t end = run.start + rows;
    CHECK(rows > 0 && run.logits_rows >= 0 && run.logits_rows <= rows, "{} logits of {} rows",
          run.logits_rows, rows);
    CHECK(run.start >= 0 && end <= rope.positions, "positions {}..{} of {}", run.start, end,
          rope.positions);
    CHECK(static_cast<int64_t>(run.pages.size()) * kBlockTokens >= end, "{} pages for {} tokens",
          run.pages.size(), end);
    sequences.push_back({.first_row = static_cast<int64_t>(tokens.size()),
                         .rows = rows,
                         .start = run.start,
                         .pages = run.pages});
    tails.push_back(run.logits_rows);
    tokens.insert(tokens.end(), run.tokens.begin(), run.tokens.end());
  }
  residual = MatrixIn(workspace.residual, static_cast<int64_t>(tokens.size()), spec.hidden);
  ops.Embed(weights.embedding, tokens, residual);
}

// From here on only rows whose logits were asked for go on: in a prefill, all but one are spared
// the last layer's attention and MLP.
void Transformer::State::Narrow(Activations& rotated) {
  const int64_t element = compute == ComputeType::kBf16 ? 2 : 4;
  KeepTails(rotated.data, rotated.cols * element, sequences, tails);
  KeepTails(reinterpret_cast<std::byte*>(residual.data), residual.cols * 4, sequences, tails);
  std::vector<SequenceRows> narrowed;
  int64_t rows = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const SequenceRows& whole = sequences[i];
    if (tails[i] == 0) continue;
    narrowed.push_back({.first_row = rows,
                        .rows = tails[i],
                        .start = whole.start + whole.rows - tails[i],
                        .pages = whole.pages});
    rows += tails[i];
  }
  sequences = std::move(narrowed);
  rotated.rows = residual.rows = rows;
}

// residual += output(attention(rotate(project(norm(residual)))))
void Transformer::State::Attend(int layer, KvPages& pages, Ops& ops) {
  const AttentionWeights& w = weights.layers[layer].attention;
  const int64_t rows = residual.rows;
  const Activations normed = ActivationsIn(workspace.normed, compute, rows, spec.hidden);
  const Matrix query = MatrixIn(workspace.query, rows, w.query.rows);
  const Matrix key = MatrixIn(workspace.key, rows, w.key.rows);
  const Matrix value = MatrixIn(workspace.value, rows, w.value.rows);
  Activations rotated = ActivationsIn(workspace.rotated, compute, rows, w.query.rows);

  ops.RmsNorm(residual, w.norm, spec.norm_eps, normed);
  ops.MatMul(normed, w.query, query, {.bias = w.query_bias});
  ops.MatMul(normed, w.key, key, {.bias = w.key_bias});
  ops.MatMul(normed, w.value, value, {.bias = w.value_bias});
  ops.StoreQkv({.q = query, .k = key, .v = value, .q_out = rotated}, rope,
               {.q_gain = w.query_norm, .k_gain = w.key_norm, .eps = spec.norm_eps},
               {.pages = pages, .layer = layer, .sequences = sequences});
  if (layer + 1 == spec.layers) Narrow(rotated);
  if (rotated.rows == 0) return;
  const Activations attended =
      ActivationsIn(workspace.attended, compute, rotated.rows, rotated.cols);
  ops.Attention(rotated, {.pages = pages, .layer = layer, .sequences = sequences}, attended);
  ops.MatMul(attended, w.output, residual, {.bias = w.output_bias, .add_to_out = true});
}

// residual += down(silu(gate(norm(residual))) * up(norm(residual)))
void Transformer::State::Feed(int layer, Ops& ops) {
  const MlpWeights& w = weights.layers[layer].mlp;
  const int64_t rows = residual.rows;
  if (rows == 0) return;
  const Activations normed = ActivationsIn(workspace.normed, compute, rows, spec.hidden);
  const Matrix gate = MatrixIn(workspace.gate, rows, w.gate.rows);
  const Matrix up = MatrixIn(workspace.up, rows, w.up.rows);
  const Activations activated = ActivationsIn(workspace.activated, compute, rows, w.gate.rows);

  ops.RmsNorm(residual, w.norm, spec.norm_eps, normed);
  ops.MatMul(normed, w.gate, gate, {.bias = w.gate_bias});
  ops.MatMul(normed, w.up, up, {.bias = w.up_bias});
  ops.SwiGlu(gate, up, activated);
  ops.MatMul(activated, w.down, residual, {.bias = w.down_bias, .add_to_out = true});
}

Transformer::Transformer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Transformer::Transformer(Transformer&&) noexcept = default;
Transformer& Transformer::operator=(Transformer&&) noexcept = default;
Transformer::~Transformer() = default;

Result<Transformer> Transformer::Load(const Checkpoint& checkpoint, ComputeType compute,
                                      int64_t max_positions) {
  CHECK(max_positions > 0, "max_positions {}", max_positions);
  auto state = std::make_unique<State>();
  state->spec = checkpoint.spec();
  state->compute = compute;
  ASSIGN_OR_RETURN(state->weights, LoadTransformerWeights(checkpoint, compute));
  state->rope = MakeRopeTable(state->spec, max_positions);
  return Transformer(std::move(state));
}

Result<void> Transformer::CopyWeights(
    ThreadPool& pool, const std::function<void(Bytes done, Bytes total)>& progress) {
  ASSIGN_OR_RETURN(state_->copies, CopyMatrices(state_->weights, pool, progress));
  return {};
}

const ModelSpec& Transformer::spec() const { return state_->spec; }
ComputeType Transformer::compute() const { return state_->compute; }
int64_t Transformer::max_positions() const { return state_->rope.positions; }

KvLayout Transformer::kv_layout() const {
  const ModelSpec& spec = state_->spec;
  return {.layers = spec.layers,
          .kv_heads = spec.kv_heads,
          .head_dim = spec.head_dim,
          .type = state_->compute};
}

int64_t Transformer::Run(std::span<const ForwardSequence> batch, KvPages& pages, Ops& ops,
                         const LayerHook& before_attention) {
  State& s = *state_;
  s.Begin(batch, ops);
  if (s.residual.rows == 0) return 0;
  for (int layer = 0; layer < s.spec.layers; ++layer) {
    if (before_attention) before_attention(layer);
    s.Attend(layer, pages, ops);
    s.Feed(layer, ops);
  }
  return s.residual.rows;
}

std::span<const float> Transformer::Logits(int64_t first, int64_t rows, Ops& ops) {
  State& s = *state_;
  CHECK(first >= 0 && rows >= 0 && first + rows <= s.residual.rows, "rows {}..{} of {}", first,
        first + rows, s.residual.rows);
  if (rows == 0) return {};
  const Matrix hidden = {
      .data = s.residual.data + first * s.spec.hidden, .rows = rows, .cols = s.spec.hidden};
  const Activations normed = ActivationsIn(s.workspace.normed, s.compute, rows, s.spec.hidden);
  const Matrix logits = MatrixIn(s.workspace.logits, rows, s.spec.vocab);
  ops.RmsNorm(hidden, s.weights.norm, s.spec.norm_eps, normed);
  ops.MatMul(normed, s.weights.head, logits, {});
  return {logits.data, static_cast<size_t>(rows * s.spec.vocab)};
}

std::span<const float> Transformer::Forward(std::span<const ForwardSequence> batch, KvPages& pages,
                                            Ops& ops) {
  const int64_t rows = Run(batch, pages, ops);
  return Logits(0, rows, ops);
}

}  // namespace divisi
