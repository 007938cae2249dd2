#include "tests/reference_model.h"

#include <cmath>
#include <numbers>
#include <string>

#include "divisi/core/check.h"
#include "divisi/core/format.h"
#include "tests/random_checkpoint.h"

namespace divisi {
namespace {

using Row = std::vector<double>;

struct Reference {
  const Checkpoint& checkpoint;
  const ModelSpec& spec;

  Row Tensor(const std::string& name) const {
    const auto found = checkpoint.tensors().find(name);
    CHECK(found != checkpoint.tensors().end(), "no tensor {}", name);
    return Values(found->second);
  }
  // Empty where the checkpoint has none.
  Row Optional(const std::string& name) const {
    return checkpoint.tensors().contains(name) ? Tensor(name) : Row{};
  }
};

Row Normed(const Row& x, const Row& gain, double eps) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  Row out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * gain[i];
  return out;
}

// weight x + bias, for weight [out, in].
Row Linear(const Row& x, const Row& weight, const Row& bias) {
  const size_t outputs = weight.size() / x.size();
  Row out(outputs);
  for (size_t n = 0; n < outputs; ++n) {
    double sum = bias.empty() ? 0 : bias[n];
    for (size_t k = 0; k < x.size(); ++k) sum += weight[n * x.size() + k] * x[k];
    out[n] = sum;
  }
  return out;
}

// Radians per position of pair i of a head.
double Frequency(const ModelSpec& spec, int i) {
  const double plain = std::pow(spec.rope_theta, -2.0 * i / spec.head_dim);
  const RopeScaling& scaling = spec.rope_scaling;
  if (scaling.kind == RopeScaling::Kind::kNone) return plain;
  if (scaling.kind == RopeScaling::Kind::kLinear) return plain / scaling.factor;
  CHECK(scaling.kind == RopeScaling::Kind::kLlama3);
  const double turns = scaling.original_max_positions * plain / (2 * std::numbers::pi);
  if (turns < scaling.low_freq_factor) return plain / scaling.factor;
  if (turns > scaling.high_freq_factor) return plain;
  const double blend =
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - blend) * plain / scaling.factor + blend * plain;
}

// Cuts head `h` out of a projection, norms it (Qwen3) and rotates it to `position`.
Row Head(const ModelSpec& spec, const Row& projected, int h, const Row& gain, int64_t position) {
  const auto first = projected.begin() + static_cast<ptrdiff_t>(h) * spec.head_dim;
  Row head(first, first + spec.head_dim);
  if (!gain.empty()) head = Normed(head, gain, spec.norm_eps);
  const int half = spec.head_dim / 2;
  for (int i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) * Frequency(spec, i);
    const double a = head[i], b = head[i + half];
    head[i] = a * std::cos(angle) - b * std::sin(angle);
    head[i + half] = b * std::cos(angle) + a * std::sin(angle);
  }
  return head;
}

// softmax(q k / sqrt(Dh)) v over the positions up to q's own.
Row AttendHead(const Row& query, const std::vector<Row>& keys, const std::vector<Row>& values) {
  Row weights(keys.size());
  double largest = -1e300, total = 0;
  for (size_t p = 0; p < keys.size(); ++p) {
    double dot = 0;
    for (size_t i = 0; i < query.size(); ++i) dot += query[i] * keys[p][i];
    weights[p] = dot / std::sqrt(static_cast<double>(query.size()));
    largest = std::max(largest, weights[p]);
  }
  for (double& w : weights) total += w = std::exp(w - largest);
  Row out(query.size(), 0.0);
  for (size_t p = 0; p < keys.size(); ++p) {
    for (size_t i = 0; i < out.size(); ++i) out[i] += weights[p] / total * values[p][i];
  }
  return out;
}

void AddAttention(const Reference& model, const std::string& prefix, std::vector<Row>& residual) {
  const ModelSpec& spec = model.spec;
  const std::string self = prefix + "self_attn.";
  const Row norm = model.Tensor(prefix + "input_layernorm.weight");
  const Row wq = model.Tensor(self + "q_proj.weight"), bq = model.Optional(self + "q_proj.bias");
  const Row wk = model.Tensor(self + "k_proj.weight"), bk = model.Optional(self + "k_proj.bias");
  const Row wv = model.Tensor(self + "v_proj.weight"), bv = model.Optional(self + "v_proj.bias");
  const Row wo = model.Tensor(self + "o_proj.weight"), bo = model.Optional(self + "o_proj.bias");
  const Row q_gain = model.Optional(self + "q_norm.weight");
  const Row k_gain = model.Optional(self + "k_norm.weight");
  std::vector<std::vector<Row>> keys(spec.kv_heads), values(spec.kv_heads);  // [head][position]
  for (size_t p = 0; p < residual.size(); ++p) {
    const Row x = Normed(residual[p], norm, spec.norm_eps);
    const Row q = Linear(x, wq, bq), k = Linear(x, wk, bk), v = Linear(x, wv, bv);
    const auto position = static_cast<int64_t>(p);
    for (int h = 0; h < spec.kv_heads; ++h) {
      keys[h].push_back(Head(spec, k, h, k_gain, position));
      const auto first = v.begin() + static_cast<ptrdiff_t>(h) * spec.head_dim;
      values[h].emplace_back(first, first + spec.head_dim);
    }
    Row attended;
    for (int h = 0; h < spec.heads; ++h) {
      const int shared = h / (spec.heads / spec.kv_heads);
      const Row head = AttendHead(Head(spec, q, h, q_gain, position), keys[shared], values[shared]);
      attended.insert(attended.end(), head.begin(), head.end());
    }
    const Row out = Linear(attended, wo, bo);
    for (size_t i = 0; i < out.size(); ++i) residual[p][i] += out[i];
  }
}

void AddMlp(const Reference& model, const std::string& prefix, std::vector<Row>& residual) {
  const std::string mlp = prefix + "mlp.";
  const Row norm = model.Tensor(prefix + "post_attention_layernorm.weight");
  const Row wg = model.Tensor(mlp + "gate_proj.weight"),
            bg = model.Optional(mlp + "gate_proj.bias");
  const Row wu = model.Tensor(mlp + "up_proj.weight"), bu = model.Optional(mlp + "up_proj.bias");
  const Row wd = model.Tensor(mlp + "down_proj.weight"),
            bd = model.Optional(mlp + "down_proj.bias");
  for (Row& row : residual) {
    const Row x = Normed(row, norm, model.spec.norm_eps);
    Row gate = Linear(x, wg, bg);
    const Row up = Linear(x, wu, bu);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    const Row out = Linear(gate, wd, bd);
    for (size_t i = 0; i < out.size(); ++i) row[i] += out[i];
  }
}

}  // namespace

std::vector<std::vector<double>> ReferenceLogits(const Checkpoint& checkpoint,
                                                 const std::vector<TokenId>& tokens) {
  const Reference model{.checkpoint = checkpoint, .spec = checkpoint.spec()};
  const Row embedding = model.Tensor("model.embed_tokens.weight");
  std::vector<Row> residual;
  for (const TokenId token : tokens) {
    const auto first = embedding.begin() + static_cast<ptrdiff_t>(token) * model.spec.hidden;
    residual.emplace_back(first, first + model.spec.hidden);
  }
  for (int layer = 0; layer < model.spec.layers; ++layer) {
    const std::string prefix = Format("model.layers.{}.", layer);
    AddAttention(model, prefix, residual);
    AddMlp(model, prefix, residual);
  }
  const Row norm = model.Tensor("model.norm.weight");
  const Row head = model.spec.tie_embeddings ? embedding : model.Tensor("lm_head.weight");
  std::vector<Row> logits;
  for (const Row& row : residual) {
    logits.push_back(Linear(Normed(row, norm, model.spec.norm_eps), head, {}));
  }
  return logits;
}

}  // namespace divisi
