#include "divisi/serve/text_assets.h"

#include <algorithm>

#include "divisi/core/file.h"

namespace divisi {
namespace {

// Larger than any checkpoint's by far; bounds what a stranger's directory can make us read.
constexpr size_t kMaxConfigBytes = 16 << 20;
constexpr size_t kMaxTemplateBytes = 1 << 20;

// A JSON file that may be missing: then null.
Result<Json> ReadOptionalJson(const std::filesystem::path& path) {
  const Result<std::string> text = ReadFile(path, kMaxConfigBytes);
  if (!text && text.error().code == Code::kNotFound) return Json();
  if (!text) return text.error();
  Result<Json> value = Json::Parse(*text);
  if (!value) return WithContext(value.error(), path.string());
  if (!value->is_object()) {
    return Error{Code::kInvalidArgument, Format("{}: not a JSON object", path.string())};
  }
  return value;
}

// A special token is written as a string or as an object with its content.
std::optional<std::string> TokenText(const Json& value) {
  if (value.is_string()) return value.as_string();
  const Json* content = value.Find("content");
  if (content != nullptr && content->is_string()) return content->as_string();
  return std::nullopt;
}

Json TemplateVariables(const Json& tokenizer_config) {
  Json variables = Json::MakeObject();
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    const Json* value = tokenizer_config.Find(name);
    if (value == nullptr) continue;
    if (auto text = TokenText(*value)) variables.Set(name, *std::move(text));
  }
  return variables;
}

// chat_template is a string, or a list of named ones of which "default" is for plain chat.
std::optional<std::string> TemplateSource(const Json& tokenizer_config) {
  const Json* value = tokenizer_config.Find("chat_template");
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->as_string();
  if (!value->is_array()) return std::nullopt;
  for (const Json& entry : value->as_array()) {
    const Json* name = entry.Find("name");
    const Json* source = entry.Find("template");
    if (name != nullptr && *name == Json("default") && source != nullptr && source->is_string()) {
      return source->as_string();
    }
  }
  return std::nullopt;
}

void TakeTemplate(std::string_view source, TextAssets& assets) {
  Result<ChatTemplate> parsed = ChatTemplate::Parse(source);
  if (parsed) {
    assets.chat_template = *std::move(parsed);
  } else {
    assets.no_template_reason = parsed.error().message;
  }
}

Result<void> FindTemplate(const std::filesystem::path& directory, const Json& tokenizer_config,
                          const std::filesystem::path& template_file, TextAssets& assets) {
  if (!template_file.empty()) {
    ASSIGN_OR_RETURN(const std::string source, ReadFile(template_file, kMaxTemplateBytes));
    Result<ChatTemplate> parsed = ChatTemplate::Parse(source);
    if (!parsed) return WithContext(parsed.error(), template_file.string());
    assets.chat_template = *std::move(parsed);
    return {};
  }
  const Result<std::string> beside = ReadFile(directory / "chat_template.jinja", kMaxTemplateBytes);
  if (beside) {
    TakeTemplate(*beside, assets);
  } else if (beside.error().code != Code::kNotFound) {
    return beside.error();  // Another template than the checkpoint's own would give other prompts.
  } else if (const auto source = TemplateSource(tokenizer_config)) {
    TakeTemplate(*source, assets);
  } else {
    assets.no_template_reason =
        "the checkpoint has no chat template; give one with --chat-template";
  }
  return {};
}

Result<void> TakeEosIds(const Json& generation_config, const ModelSpec& spec, TextAssets& assets) {
  assets.eos_token_ids.assign(spec.eos_token_ids.begin(), spec.eos_token_ids.end());
  if (const Json* ids = generation_config.Find("eos_token_id"); ids != nullptr && !ids->is_null()) {
    const Json::Array list = ids->is_array() ? ids->as_array() : Json::Array{*ids};
    for (const Json& id : list) {
      if (!id.is_int() || id.as_int() < 0 || id.as_int() >= spec.vocab) {
        return Error{
            Code::kInvalidArgument,
            Format("generation_config.json: eos_token_id {} is not one of the {} token ids",
                   id.Dump(), spec.vocab)};
      }
      assets.eos_token_ids.push_back(static_cast<TokenId>(id.as_int()));
    }
  }
  std::ranges::sort(assets.eos_token_ids);
  // clang 14 does not compile libstdc++'s std::ranges::unique.
  assets.eos_token_ids.erase(std::unique(assets.eos_token_ids.begin(), assets.eos_token_ids.end()),
                             assets.eos_token_ids.end());
  return {};
}

}  // namespace

Result<TextAssets> LoadTextAssets(const std::filesystem::path& directory, const ModelSpec& spec,
                                  const std::filesystem::path& template_file) {
  ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::Load(directory));
  TextAssets assets{.tokenizer = std::move(tokenizer)};
  ASSIGN_OR_RETURN(const Json tokenizer_config,
                   ReadOptionalJson(directory / "tokenizer_config.json"));
  ASSIGN_OR_RETURN(assets.generation_config,
                   ReadOptionalJson(directory / "generation_config.json"));
  assets.template_variables = TemplateVariables(tokenizer_config);
  RETURN_IF_ERROR(FindTemplate(directory, tokenizer_config, template_file, assets));
  RETURN_IF_ERROR(TakeEosIds(assets.generation_config, spec, assets));
  return assets;
}

}  // namespace divisi
