#include "divisi/serve/openai_generation.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "divisi/core/format.h"
#include "divisi/engine/request.h"

namespace divisi {
namespace {

constexpr size_t kMaxModelNameBytes = 1024;
// Beyond this, sampling is uniform to all ends; OpenAI stops at 2, and its own clients go no
// higher.
constexpr double kMaxTemperature = 100;
// Beyond this, logits lose their order entirely; vLLM sets no bound.
constexpr double kMaxRepetitionPenalty = 100;
// Below this, greedy: dividing logits by it would overflow. vLLM draws the same line.
constexpr double kLeastTemperature = 1e-5;
constexpr double kSmallestPositive = std::numeric_limits<double>::min();

int TopK(RequestFields& fields, const GenerationDefaults& defaults) {
  // vLLM turns it off with -1 (or 0).
  const auto asked = fields.Int("top_k", -1, std::numeric_limits<int>::max());
  return std::max(0, static_cast<int>(asked.value_or(defaults.top_k.value_or(0))));
}

std::vector<std::pair<TokenId, float>> LogitBias(RequestFields& fields) {
  std::vector<std::pair<TokenId, float>> bias;
  const Json* value = fields.Find("logit_bias");
  if (value == nullptr) return bias;
  if (!value->is_object() || value->as_object().size() > kMaxLogitBias) {
    fields.Fail("logit_bias", Format("'logit_bias' must be an object from token id to a number "
                                     "between -100 and 100, with at most {} members",
                                     kMaxLogitBias));
    return bias;
  }
  for (const auto& [key, number] : value->as_object()) {
    TokenId id = 0;
    const auto [end, status] = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool good_key = status == std::errc() && end == key.data() + key.size() && id >= 0;
    if (!good_key || !number.is_number() || std::abs(number.as_double()) > 100) {
      fields.Fail("logit_bias",
                  Format("'logit_bias' maps token ids to numbers between -100 and 100; "
                         "{}: {} does not",
                         Json(key).Dump(), number.Dump()));
      return bias;
    }
    bias.emplace_back(id, static_cast<float>(number.as_double()));
  }
  std::stable_sort(bias.begin(), bias.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  return bias;
}

SamplingParams Sampling(RequestFields& fields, const GenerationDefaults& defaults) {
  SamplingParams params;
  const auto number = [&](const char* name, double low, double high, double absent) {
    return fields.Number(name, low, high).value_or(absent);
  };
  params.temperature = number("temperature", 0, kMaxTemperature, defaults.temperature.value_or(1));
  if (params.temperature < kLeastTemperature) params.temperature = 0;
  params.top_p = fields.PositiveNumber("top_p", 1).value_or(defaults.top_p.value_or(1));
  params.top_k = TopK(fields, defaults);
  params.min_p = number("min_p", 0, 1, defaults.min_p.value_or(0));
  params.presence_penalty = number("presence_penalty", -2, 2, 0);
  params.frequency_penalty = number("frequency_penalty", -2, 2, 0);
  params.repetition_penalty = fields.PositiveNumber("repetition_penalty", kMaxRepetitionPenalty)
                                  .value_or(defaults.repetition_penalty.value_or(1));
  params.logit_bias = LogitBias(fields);
  return params;
}

std::vector<std::string> StopStrings(RequestFields& fields) {
  std::vector<std::string> stops;
  const Json* value = fields.Find("stop");
  if (value == nullptr) return stops;
  const Json::Array single{*value};
  const Json::Array& list = value->is_array() ? value->as_array() : single;
  if (list.size() > kMaxStops) {
    fields.Fail("stop",
                Format("'stop' holds {} strings; at most {} are taken", list.size(), kMaxStops));
    return stops;
  }
  for (const Json& stop : list) {
    if (!stop.is_string() || stop.as_string().empty() || stop.as_string().size() > kMaxStopBytes) {
      fields.Fail("stop", Format("'stop' must be a string or an array of strings, each of 1 to {} "
                                 "bytes",
                                 kMaxStopBytes));
      return stops;
    }
    stops.push_back(stop.as_string());
  }
  return stops;
}

std::vector<TokenId> StopTokenIds(RequestFields& fields) {
  std::vector<TokenId> ids;
  const Json* value = fields.Find("stop_token_ids");
  if (value == nullptr) return ids;
  const bool good_list = value->is_array() && value->as_array().size() <= kMaxStopTokenIds;
  const auto is_id = [](const Json& id) {
    return id.is_int() && id.as_int() >= 0 && id.as_int() <= std::numeric_limits<TokenId>::max();
  };
  if (!good_list || !std::ranges::all_of(value->as_array(), is_id)) {
    fields.Fail(
        "stop_token_ids",
        Format("'stop_token_ids' must be an array of at most {} token ids", kMaxStopTokenIds));
    return ids;
  }
  for (const Json& id : value->as_array()) ids.push_back(static_cast<TokenId>(id.as_int()));
  return ids;
}

void StreamOptions(RequestFields& fields, GenerationRequest& request) {
  request.stream = fields.Bool("stream").value_or(false);
  const Json* options = fields.Find("stream_options");
  if (options == nullptr) return;
  if (!request.stream) {
    fields.Fail("stream_options", "'stream_options' may be given only with 'stream': true");
    return;
  }
  if (!options->is_object()) {
    fields.Fail("stream_options", "'stream_options' must be an object");
    return;
  }
  RequestFields inner(*options);
  request.include_usage = inner.Bool("include_usage").value_or(false);
  request.continuous_usage =
      request.include_usage && inner.Bool("continuous_usage_stats").value_or(false);
  if (inner.error()) {
    fields.Fail("stream_options." + inner.error()->param.value_or(""), inner.error()->message);
  }
}

void ResponseFormat(RequestFields& fields) {
  const Json* format = fields.Find("response_format");
  if (format == nullptr) return;
  const Json* type = format->Find("type");
  if (type == nullptr || *type != Json("text")) {
    fields.Fail("response_format",
                "'response_format' may be {\"type\": \"text\"} only; constrained "
                "output is not supported");
  }
}

SessionState Session(RequestFields& fields) {
  constexpr size_t kMaxStateBytes = 16;
  const auto state = fields.String("kv_session", kMaxStateBytes);
  if (!state) return SessionState::kUnknown;
  if (*state == "open") return SessionState::kOpen;
  if (*state == "closed") return SessionState::kClosed;
  fields.Fail("kv_session",
              Format("'kv_session' must be \"open\" or \"closed\", not {}", Json(*state).Dump()));
  return SessionState::kUnknown;
}

void RefuseUnsupported(RequestFields& fields) {
  for (const char* name :
       {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"}) {
    fields.Refuse(name, "constrained output is not available");
  }
  fields.Refuse("min_tokens",
                "leave it out, or use 'ignore_eos' with 'max_tokens' for a fixed length");
  fields.Refuse("prompt_logprobs", "use /v1/completions with 'echo' and 'logprobs'");
  fields.Refuse("use_beam_search", "use 'n' with sampling");
  fields.Refuse("truncate_prompt_tokens", "shorten the prompt on your side");
  fields.Refuse("logits_processors", "use 'logit_bias'");
  fields.Refuse("bad_words", "use 'logit_bias'");
  fields.Refuse("allowed_token_ids", "use 'logit_bias'");
  ResponseFormat(fields);
}

}  // namespace

GenerationDefaults ParseGenerationDefaults(const Json& config) {
  const auto number = [&](const char* name, double low, double high) -> std::optional<double> {
    const Json* value = config.Find(name);
    if (value == nullptr || !value->is_number()) return std::nullopt;
    const double given = value->as_double();
    return given >= low && given <= high ? std::optional(given) : std::nullopt;
  };
  GenerationDefaults defaults;
  defaults.temperature = number("temperature", 0, kMaxTemperature);
  defaults.top_p = number("top_p", kSmallestPositive, 1);
  defaults.min_p = number("min_p", 0, 1);
  defaults.repetition_penalty =
      number("repetition_penalty", kSmallestPositive, kMaxRepetitionPenalty);
  if (const auto k = number("top_k", 0, 1e9)) defaults.top_k = static_cast<int>(*k);
  return defaults;
}

GenerationRequest ReadGeneration(RequestFields& fields, const GenerationDefaults& defaults) {
  GenerationRequest request;
  request.model = fields.String("model", kMaxModelNameBytes).value_or("");
  request.sampling = Sampling(fields, defaults);
  const auto seed =
      fields.Int("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  if (seed) request.seed = static_cast<uint64_t>(*seed);
  request.sampling.seed = request.seed.value_or(0);
  request.n = static_cast<int>(fields.Int("n", 1, kMaxChoices).value_or(1));
  request.stop = StopStrings(fields);
  request.stop_token_ids = StopTokenIds(fields);
  request.ignore_eos = fields.Bool("ignore_eos").value_or(false);
  request.cache_salt = fields.String("cache_salt", kMaxCacheSaltBytes).value_or("");
  request.session = Session(fields);
  request.include_stop_in_output = fields.Bool("include_stop_str_in_output").value_or(false);
  request.skip_special_tokens = fields.Bool("skip_special_tokens").value_or(true);
  StreamOptions(fields, request);
  RefuseUnsupported(fields);
  return request;
}

}  // namespace divisi
