// The text side of a checkpoint directory: tokenizer, chat template, and what
// generation_config.json and tokenizer_config.json add to it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "divisi/catalog/model_spec.h"
#include "divisi/core/json.h"
#include "divisi/model/chat_template.h"
#include "divisi/model/tokenizer.h"

namespace divisi {

struct TextAssets {
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;
  std::string no_template_reason;      // Why chat_template is absent.
  Json template_variables;             // bos_token, eos_token, ...: those that the files name.
  Json generation_config;              // Null where there is no file.
  std::vector<TokenId> eos_token_ids;  // Of config.json and generation_config.json; sorted.
};

// Reads tokenizer.json (needed), tokenizer_config.json, generation_config.json, and the chat
// template: `template_file` where given, else chat_template.jinja, else tokenizer_config.json's.
// A checkpoint's own template outside the supported Jinja costs only chat, and is named in
// no_template_reason.
// Errors: those of Tokenizer::Load; kInvalidArgument for a file that is not JSON or holds ids
// outside the model's vocabulary; those of ChatTemplate::Parse for template_file; those of ReadFile
// for a file that is there but cannot be read or is too large.
Result<TextAssets> LoadTextAssets(const std::filesystem::path& directory, const ModelSpec& spec,
                                  const std::filesystem::path& template_file = {});

}  // namespace divisi
