#include "divisi/model/inspect.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "divisi/model/model_tensors.h"
#include "divisi/model/servable.h"

namespace divisi {
namespace {

// "embedding" to "head", then "other".
size_t PartOrder(std::string_view part) {
  size_t order = 0;
  for (const ModelPart known : kModelParts) {
    if (part == ModelPartName(known)) break;
    ++order;
  }
  return order;
}

// Adds up tensors by part and type.
class Groups {
 public:
  void Add(const std::string& part, DataType type, int64_t parameters) {
    Add(part, SafetensorsTypeName(type), parameters, Bytes(parameters * ElementBytes(type)));
  }
  void Add(const std::string& part, const std::string& type, int64_t parameters, Bytes bytes) {
    WeightGroup& group = groups_[{PartOrder(part), type}];
    group.part = part;
    group.type = type;
    ++group.tensors;
    group.parameters += parameters;
    group.bytes += bytes;
  }
  std::vector<WeightGroup> Take() && {
    std::vector<WeightGroup> groups;
    for (auto& [key, group] : groups_) groups.push_back(std::move(group));
    return groups;
  }

 private:
  std::map<std::pair<size_t, std::string>, WeightGroup> groups_;
};

// 1443840 -> "1,443,840".
std::string Grouped(int64_t number) {
  const std::string digits = Format("{}", number);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

// A name from a file, fit for a terminal: control characters escaped.
std::string Printable(std::string_view name) {
  const std::string quoted = Json(name).Dump();
  return quoted.substr(1, quoted.size() - 2);
}

const char* RopeScalingName(RopeScaling::Kind kind) {
  switch (kind) {
    case RopeScaling::Kind::kNone:
      return "default";
    case RopeScaling::Kind::kLinear:
      return "linear";
    case RopeScaling::Kind::kLlama3:
      return "llama3";
    case RopeScaling::Kind::kYarn:
      return "yarn";
  }
  CHECK(false, "no rope scaling {}", static_cast<int>(kind));
}

Json RopeScalingJson(const RopeScaling& scaling) {
  if (scaling.kind == RopeScaling::Kind::kNone) return nullptr;
  Json json = Json::Object{{"type", RopeScalingName(scaling.kind)}, {"factor", scaling.factor}};
  if (scaling.original_max_positions > 0) {
    json.Set("original_max_positions", static_cast<int64_t>(scaling.original_max_positions));
  }
  return json;
}

Json MlaJson(const std::optional<MlaSpec>& mla) {
  if (!mla) return nullptr;
  return Json::Object{{"query_rank", mla->query_rank},
                      {"latent_dim", mla->latent_dim},
                      {"rope_dim", mla->rope_dim},
                      {"nope_dim", mla->nope_dim},
                      {"value_dim", mla->value_dim}};
}

Json MoeJson(const std::optional<MoeSpec>& moe) {
  if (!moe) return nullptr;
  return Json::Object{{"experts", moe->experts},
                      {"experts_per_token", moe->experts_per_token},
                      {"expert_intermediate", moe->expert_intermediate},
                      {"shared_intermediate", moe->shared_intermediate},
                      {"layers", moe->layers}};
}

Json QuantisedJson(const std::optional<QuantisedWeights>& quantised) {
  if (!quantised) return nullptr;
  return Json::Object{{"type", quantised->type}, {"bytes", quantised->bytes}};
}

Json::Object SpecMembers(const ModelSpec& spec) {
  return {{"family", spec.family},
          {"architecture", spec.architecture},
          {"layers", spec.layers},
          {"hidden", spec.hidden},
          {"heads", spec.heads},
          {"kv_heads", spec.kv_heads},
          {"head_dim", spec.head_dim},
          {"intermediate", spec.intermediate},
          {"vocab", spec.vocab},
          {"max_positions", spec.max_positions},
          {"rope_theta", spec.rope_theta},
          {"rope_scaling", RopeScalingJson(spec.rope_scaling)},
          {"tie_embeddings", spec.tie_embeddings},
          {"qkv_bias", spec.qkv_bias},
          {"output_bias", spec.output_bias},
          {"mlp_bias", spec.mlp_bias},
          {"qk_norm", spec.qk_norm},
          {"mla", MlaJson(spec.mla)},
          {"moe", MoeJson(spec.moe)},
          {"quantised", QuantisedJson(spec.quantised)},
          {"stored_type", DataTypeName(spec.stored_type)},
          {"eos_token_ids", Json::Array(spec.eos_token_ids.begin(), spec.eos_token_ids.end())}};
}

Json ServeJson(const Inspection& inspection, const ServeLoad& load) {
  const Bytes weights = WeightBytes(inspection);
  const Bytes kv = KvBytes(inspection.spec, load).value();
  return Json::Object{{"sequences", load.sequences},
                      {"tokens", load.tokens},
                      {"kv_dtype", DataTypeName(load.kv_type)},
                      {"weight_bytes", weights.value},
                      {"kv_bytes", kv.value},
                      {"total_bytes", (weights + kv).value},
                      {"machine_bytes", load.machine.value},
                      {"fits", weights + kv <= load.machine},
                      {"supported", CheckServable(inspection.spec).ok()}};
}

std::string Features(const ModelSpec& spec) {
  std::string text;
  const auto add = [&](bool has, const char* what) {
    if (has) text += Format(", {}", what);
  };
  add(spec.qk_norm, "norms on queries and keys");
  add(spec.qkv_bias, "biases on q, k, v");
  add(spec.output_bias, "bias on the output");
  add(spec.mlp_bias, "biases in the MLP");
  return text;
}

std::string AttentionLine(const ModelSpec& spec) {
  if (!spec.mla) {
    return Format("{} query heads over {} KV heads of {}", spec.heads, spec.kv_heads,
                  spec.head_dim);
  }
  const MlaSpec& mla = *spec.mla;
  const std::string rank = mla.query_rank > 0 ? Format("by rank {}", mla.query_rank) : "direct";
  return Format(
      "MLA: {} heads of {} + {} rotary, values of {}; caches {} + {} per layer; queries {}",
      spec.heads, mla.nope_dim, mla.rope_dim, mla.value_dim, mla.latent_dim, mla.rope_dim, rank);
}

std::string ExpertLine(const ModelSpec& spec) {
  if (!spec.moe) return "";
  const MoeSpec& moe = *spec.moe;
  return Format(
      "experts     {} in {} of {} layers, {} per token, {} wide{}\n", moe.experts, moe.layers,
      spec.layers, moe.experts_per_token, moe.expert_intermediate,
      moe.shared_intermediate > 0 ? Format(", shared {} wide", moe.shared_intermediate) : "");
}

std::string ShapeLines(const ModelSpec& spec) {
  std::string rope = Format("rotary base {:g}", spec.rope_theta);
  if (spec.rope_scaling.kind != RopeScaling::Kind::kNone) {
    rope += Format(", {} scaling by {:g}", RopeScalingName(spec.rope_scaling.kind),
                   spec.rope_scaling.factor);
  }
  return Format(
      "family      {} ({})\n"
      "layers      {}, hidden {}, MLP {}{}\n"
      "attention   {}\n"
      "{}"
      "vocabulary  {}, head {}\n"
      "positions   {}, {}\n",
      spec.family, spec.architecture, spec.layers, spec.hidden, spec.intermediate, Features(spec),
      AttentionLine(spec), ExpertLine(spec), spec.vocab,
      spec.tie_embeddings ? "tied to the embedding" : "of its own", spec.max_positions, rope);
}

std::string GroupLines(const Inspection& inspection) {
  const Bytes total = WeightBytes(inspection);
  std::string text = Format("\n{:<10} {:<5} {:>8} {:>18} {:>12} {:>6}\n", "weights", "type",
                            "tensors", "parameters", "bytes", "share");
  int64_t tensors = 0, parameters = 0;
  for (const WeightGroup& group : inspection.groups) {
    text += Format("{:<10} {:<5} {:>8} {:>18} {:>12} {:>5.1f}%\n", group.part, group.type,
                   group.tensors, Grouped(group.parameters), HumanBytes(group.bytes),
                   total.value > 0 ? 100 * (group.bytes / total) : 0);
    tensors += group.tensors;
    parameters += group.parameters;
  }
  return text + Format("{:<10} {:<5} {:>8} {:>18} {:>12}\n", "total", "", tensors,
                       Grouped(parameters), HumanBytes(total));
}

std::string ServeLines(const Inspection& inspection, const ServeLoad& load) {
  const Bytes weights = WeightBytes(inspection);
  const Bytes kv = KvBytes(inspection.spec, load).value();
  const int64_t active = inspection.spec.ActiveParameters();
  std::string notes;
  if (inspection.spec.moe) notes += Format("\nA token meets {} parameters.", Grouped(active));
  if (const auto servable = CheckServable(inspection.spec); !servable) {
    notes += Format("\nNote: {}.", servable.error().message);
  }
  return notes +
         Format(
             "\nKV per token: {} as bfloat16, {} as float32\n"
             "{} sequences of {} tokens: weights {} + KV ({}) {} = {}; this machine has {}: {}\n",
             HumanBytes(inspection.spec.KvBytesPerToken(DataType::kBf16)),
             HumanBytes(inspection.spec.KvBytesPerToken(DataType::kF32)), load.sequences,
             load.tokens, HumanBytes(weights), DataTypeName(load.kv_type), HumanBytes(kv),
             HumanBytes(weights + kv), HumanBytes(load.machine),
             weights + kv <= load.machine ? "fits" : "does not fit");
}

// Whether quantisation takes the tensor: projections and experts, not the router, whose scores
// decide, nor what lies outside the layers.
bool IsQuantised(const ModelSpec& spec, const ModelTensor& tensor) {
  const bool taken = tensor.part == ModelPart::kAttention || tensor.part == ModelPart::kMlp ||
                     tensor.part == ModelPart::kExpert;
  return spec.quantised && taken && tensor.shape.size() == 2;
}

// What a checkpoint of quantised weights lacks or misshapes; their types are not DataType's, so
// that tensors of those are only known to be there.
std::vector<std::string> ProblemsOfQuantised(const Checkpoint& checkpoint) {
  std::vector<std::string> problems;
  for (const ModelTensor& tensor : ModelTensors(checkpoint.spec())) {
    const auto got = checkpoint.Get(tensor.name, tensor.shape);
    if (!got && got.error().code != Code::kUnimplemented) problems.push_back(got.error().message);
  }
  return problems;
}

}  // namespace

Inspection Inspect(const Checkpoint& checkpoint) {
  if (checkpoint.spec().quantised) {
    Inspection inspection = InspectSpec(checkpoint.spec());
    inspection.problems = ProblemsOfQuantised(checkpoint);
    return inspection;
  }
  Inspection inspection{.spec = checkpoint.spec()};
  std::map<std::string, ModelPart> part_of;
  for (ModelTensor& tensor : ModelTensors(checkpoint.spec())) {
    const auto got = checkpoint.Get(tensor.name, tensor.shape);
    if (!got) inspection.problems.push_back(got.error().message);
    part_of.emplace(std::move(tensor.name), tensor.part);
  }
  Groups groups;
  for (const auto& [name, view] : checkpoint.tensors()) {
    const auto part = part_of.find(name);
    groups.Add(part == part_of.end() ? "other" : ModelPartName(part->second), view.type,
               static_cast<int64_t>(view.bytes.size()) / ElementBytes(view.type));
  }
  inspection.groups = std::move(groups).Take();
  return inspection;
}

Inspection InspectSpec(const ModelSpec& spec) {
  Inspection inspection{.spec = spec};
  Groups groups;
  for (const ModelTensor& tensor : ModelTensors(spec)) {
    const int64_t elements = Elements(tensor.shape);
    const std::string part = ModelPartName(tensor.part);
    if (IsQuantised(spec, tensor)) {
      const double bytes = std::ceil(static_cast<double>(elements) * spec.quantised->bytes);
      groups.Add(part, spec.quantised->type, elements, Bytes(static_cast<int64_t>(bytes)));
    } else {
      // Checkpoints keep the selection bias in float32, whatever the rest is in.
      const bool bias = tensor.part == ModelPart::kRouter && tensor.shape.size() == 1;
      groups.Add(part, bias ? DataType::kF32 : spec.stored_type, elements);
    }
  }
  inspection.groups = std::move(groups).Take();
  return inspection;
}

Bytes WeightBytes(const Inspection& inspection) {
  Bytes total;
  for (const WeightGroup& group : inspection.groups) total += group.bytes;
  return total;
}

Result<Bytes> KvBytes(const ModelSpec& spec, const ServeLoad& load) {
  constexpr int64_t kMost = int64_t{1} << 60;  // An exbibyte; with the weights it stays below 2^63.
  int64_t bytes = spec.KvBytesPerToken(load.kv_type).value;
  for (const int64_t factor : {load.sequences, load.tokens}) {
    if (__builtin_mul_overflow(bytes, factor, &bytes) || bytes > kMost) {
      return Error{Code::kOutOfRange,
                   Format("{} sequences of {} tokens need over {} of KV; ask for fewer",
                          load.sequences, load.tokens, HumanBytes(Bytes(kMost)))};
    }
  }
  return Bytes(bytes);
}

Json InspectionJson(const Inspection& inspection, const ServeLoad& load) {
  const ModelSpec& spec = inspection.spec;
  Json json = SpecMembers(spec);
  json.Set("parameters", spec.Parameters());
  json.Set("active_parameters", spec.ActiveParameters());
  json.Set("weight_bytes", WeightBytes(inspection).value);
  Json weights = Json::MakeArray();
  for (const WeightGroup& group : inspection.groups) {
    weights.Append(Json::Object{{"part", group.part},
                                {"dtype", group.type},
                                {"tensors", group.tensors},
                                {"parameters", group.parameters},
                                {"bytes", group.bytes.value}});
  }
  json.Set("weights", std::move(weights));
  json.Set("kv_bytes_per_token",
           Json::Object{{"bfloat16", spec.KvBytesPerToken(DataType::kBf16).value},
                        {"float32", spec.KvBytesPerToken(DataType::kF32).value}});
  json.Set("serve", ServeJson(inspection, load));
  json.Set("problems", Json::Array(inspection.problems.begin(), inspection.problems.end()));
  return json;
}

std::string InspectionText(const Inspection& inspection, const ServeLoad& load) {
  std::string text =
      ShapeLines(inspection.spec) + GroupLines(inspection) + ServeLines(inspection, load);
  for (const std::string& problem : inspection.problems) text += Format("\nproblem: {}", problem);
  if (!inspection.problems.empty()) text += '\n';
  return text;
}

Json TensorsJson(const Checkpoint& checkpoint) {
  Json tensors = Json::MakeArray();
  for (const auto& [name, view] : checkpoint.tensors()) {
    tensors.Append(Json::Object{{"name", name},
                                {"dtype", SafetensorsTypeName(view.type)},
                                {"shape", Json::Array(view.shape.begin(), view.shape.end())},
                                {"bytes", static_cast<int64_t>(view.bytes.size())}});
  }
  return tensors;
}

std::string TensorsText(const Checkpoint& checkpoint) {
  std::string text;
  for (const auto& [name, view] : checkpoint.tensors()) {
    std::string shape;
    for (const int64_t extent : view.shape)
      shape += Format("{}{}", shape.empty() ? "" : " x ", extent);
    text += Format("{:<60} {:<5} {:>16} {:>12}\n", Printable(name), SafetensorsTypeName(view.type),
                   shape, HumanBytes(Bytes(static_cast<int64_t>(view.bytes.size()))));
  }
  return text;
}

}  // namespace divisi
