#include "divisi/catalog/rope_config.h"

namespace divisi {
namespace {

// Far beyond any trained model, and small enough that frequencies stay finite in f32.
constexpr NumberBounds kThetaBounds = {1, 1e12};
constexpr NumberBounds kFactorBounds = {1, 1e6};
constexpr IntBounds kOriginalBounds = {1, 1 << 30};
constexpr NumberBounds kPositive = {1e-6, 1e6};
constexpr NumberBounds kNotNegative = {0, 1e6};

Result<RopeScaling> ParseLinear(const ConfigFields& fields) {
  RopeScaling scaling{.kind = RopeScaling::Kind::kLinear};
  ASSIGN_OR_RETURN(scaling.factor, fields.RequiredNumber("factor", kFactorBounds));
  return scaling;
}

Result<RopeScaling> ParseLlama3(const ConfigFields& fields) {
  RopeScaling scaling{.kind = RopeScaling::Kind::kLlama3};
  ASSIGN_OR_RETURN(scaling.factor, fields.RequiredNumber("factor", kFactorBounds));
  ASSIGN_OR_RETURN(scaling.original_max_positions,
                   fields.RequiredInt("original_max_position_embeddings", kOriginalBounds));
  ASSIGN_OR_RETURN(scaling.low_freq_factor, fields.RequiredNumber("low_freq_factor", kPositive));
  ASSIGN_OR_RETURN(scaling.high_freq_factor, fields.RequiredNumber("high_freq_factor", kPositive));
  // Frequencies between the two are blended with a weight that divides by their difference.
  if (scaling.high_freq_factor <= scaling.low_freq_factor) {
    return fields.Invalid("high_freq_factor", "must be above low_freq_factor");
  }
  return scaling;
}

Result<RopeScaling> ParseYarn(const ConfigFields& fields, int max_positions) {
  RopeScaling scaling{.kind = RopeScaling::Kind::kYarn};
  ASSIGN_OR_RETURN(const auto original,
                   fields.OptionalInt("original_max_position_embeddings", kOriginalBounds));
  scaling.original_max_positions = original.value_or(max_positions);
  ASSIGN_OR_RETURN(const auto factor, fields.OptionalNumber("factor", kFactorBounds));
  if (!factor && !original) return fields.Invalid("factor", "is missing");
  scaling.factor = factor.value_or(max_positions / scaling.original_max_positions);
  if (scaling.factor < kFactorBounds.least) {
    return fields.Invalid("original_max_position_embeddings",
                          "is above max_position_embeddings, and no factor is given");
  }
  ASSIGN_OR_RETURN(scaling.beta_fast, fields.Number("beta_fast", 32, kPositive));
  ASSIGN_OR_RETURN(scaling.beta_slow, fields.Number("beta_slow", 1, kPositive));
  if (scaling.beta_fast < scaling.beta_slow) {
    return fields.Invalid("beta_fast", "must not be below beta_slow");
  }
  ASSIGN_OR_RETURN(scaling.truncate, fields.Bool("truncate", true));
  ASSIGN_OR_RETURN(scaling.attention_factor, fields.OptionalNumber("attention_factor", kPositive));
  ASSIGN_OR_RETURN(scaling.mscale, fields.Number("mscale", 0, kNotNegative));
  ASSIGN_OR_RETURN(scaling.mscale_all_dim, fields.Number("mscale_all_dim", 0, kNotNegative));
  return scaling;
}

Result<RopeScaling> ParseScaling(const ConfigFields& fields, int max_positions,
                                 std::string_view type_if_absent) {
  const char* field = fields.Has("rope_type") || !fields.Has("type") ? "rope_type" : "type";
  ASSIGN_OR_RETURN(const std::string type, fields.Text(field, type_if_absent));
  if (type.empty()) return fields.Invalid("rope_type", "is missing");
  if (type == "default") return RopeScaling{};
  if (type == "linear") return ParseLinear(fields);
  if (type == "llama3") return ParseLlama3(fields);
  if (type == "yarn") return ParseYarn(fields, max_positions);
  return fields.Unimplemented(field,
                              Format("{} is not supported; default, linear, llama3 and yarn are",
                                     Json(type.substr(0, 60)).Dump()));
}

// The object member `name` as fields, if it is there.
Result<std::optional<ConfigFields>> ObjectField(const ConfigFields& config, std::string_view name) {
  const Json* member = config.Find(name);
  if (member == nullptr) return std::optional<ConfigFields>();
  if (!member->is_object()) {
    return config.Invalid(name, Format("must be an object, not {}", member->TypeName()));
  }
  return std::optional(ConfigFields(*member, config.Name(name) + "."));
}

// Errors: kUnimplemented when only a part of each head rotates.
Result<void> CheckWholeHeadRotates(const ConfigFields& fields) {
  ASSIGN_OR_RETURN(const double part, fields.Number("partial_rotary_factor", 1, {0, 1}));
  if (part == 1) return {};
  return fields.Unimplemented("partial_rotary_factor", Format("{:g} is not supported; 1 is", part));
}

}  // namespace

Result<RopeConfig> ParseRopeConfig(const ConfigFields& config, int max_positions) {
  RopeConfig rope;
  RETURN_IF_ERROR(CheckWholeHeadRotates(config));
  ASSIGN_OR_RETURN(const auto theta, config.OptionalNumber("rope_theta", kThetaBounds));
  ASSIGN_OR_RETURN(const auto older, ObjectField(config, "rope_scaling"));
  ASSIGN_OR_RETURN(const auto newer, ObjectField(config, "rope_parameters"));
  if (older && newer && *config.Find("rope_scaling") != *config.Find("rope_parameters")) {
    return config.Invalid("rope_scaling", "and rope_parameters disagree; give one of them");
  }
  const auto& object = newer ? newer : older;
  if (!object) {
    rope.theta = theta.value_or(rope.theta);
    return rope;
  }
  RETURN_IF_ERROR(CheckWholeHeadRotates(*object));
  ASSIGN_OR_RETURN(const auto inner_theta, object->OptionalNumber("rope_theta", kThetaBounds));
  if (theta && inner_theta && *theta != *inner_theta) {
    return object->Invalid("rope_theta", "and rope_theta disagree; give one of them");
  }
  rope.theta = inner_theta.value_or(theta.value_or(rope.theta));
  // rope_parameters may say no more than rope_theta; rope_scaling is there to name a type.
  ASSIGN_OR_RETURN(rope.scaling, ParseScaling(*object, max_positions, newer ? "default" : ""));
  if (rope.scaling.kind == RopeScaling::Kind::kYarn && rope.theta <= 1) {
    return (inner_theta ? *object : config)
        .Invalid("rope_theta", "must be above 1 for yarn, which divides by its logarithm");
  }
  return rope;
}

}  // namespace divisi
