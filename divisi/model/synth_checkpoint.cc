#include "divisi/model/synth_checkpoint.h"

#include "divisi/core/file.h"
#include "divisi/model/servable.h"
#include "divisi/model/synth_tokenizer.h"
#include "divisi/model/tokenizer.h"

namespace divisi {
namespace {

// The largest published tokenizer.json has some 30 MB.
constexpr size_t kMostTokenizerBytes = size_t{256} << 20;

Result<void> WriteJson(const std::filesystem::path& path, const Json& json) {
  return WriteFileAtomic(path, json.Dump(2) + "\n");
}

// What a config and a generation config say about the tokens that begin and end a text.
void SetEndTokens(const Json& from, Json& config) {
  for (const char* field : {"bos_token_id", "eos_token_id"}) {
    if (const Json* id = from.Find(field); id != nullptr) config.Set(field, *id);
  }
}

// Tokenizer and generation files of bytes as tokens; their end tokens go into config.
Result<void> WriteByteTokenizer(const ModelSpec& spec, const std::filesystem::path& directory,
                                Json& config) {
  ASSIGN_OR_RETURN(const SynthTokens tokens, SynthTokensOf(spec));
  RETURN_IF_ERROR(WriteFileAtomic(directory / "tokenizer.json", SynthTokenizer(tokens).Dump()));
  RETURN_IF_ERROR(WriteJson(directory / "tokenizer_config.json",
                            SynthTokenizerConfig(tokens, spec.max_positions)));
  const Json generation = SynthGenerationConfig(tokens);
  SetEndTokens(generation, config);
  return WriteJson(directory / "generation_config.json", generation);
}

// Copies the files of another checkpoint's tokenizer; its end tokens go into config.
Result<void> CopyTokenizer(const std::filesystem::path& from, const std::filesystem::path& to,
                           int vocab, Json& config) {
  ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Load(from));
  if (tokenizer.vocab_size() > vocab) {
    return Error{Code::kInvalidArgument,
                 Format("the tokenizer in {} has {} ids, but vocab_size is {}", from.string(),
                        tokenizer.vocab_size(), vocab)};
  }
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                           "generation_config.json"}) {
    const auto content = ReadFile(from / name, kMostTokenizerBytes);
    if (!content && content.error().code == Code::kNotFound) continue;  // Only the first must be.
    if (!content) return content.error();
    RETURN_IF_ERROR(WriteFileAtomic(to / name, *content));
    if (std::string_view(name) != "generation_config.json") continue;
    auto generation = Json::Parse(*content);
    if (!generation) return WithContext(generation.error(), (from / name).string());
    SetEndTokens(*generation, config);
  }
  return {};
}

}  // namespace

Result<void> WriteSynthCheckpoint(const Json& config, const std::filesystem::path& directory,
                                  const SynthCheckpointOptions& options, ThreadPool& pool) {
  ASSIGN_OR_RETURN(const ModelSpec spec, ParseModelSpec(config));
  RETURN_IF_ERROR(CheckServable(spec));
  Json written = config;
  const char* type_field = config.Find("dtype") != nullptr ? "dtype" : "torch_dtype";
  written.Set(type_field, DataTypeName(options.weights.type));
  if (options.tokenizer_directory.empty()) {
    RETURN_IF_ERROR(WriteByteTokenizer(spec, directory, written));
  } else {
    RETURN_IF_ERROR(CopyTokenizer(options.tokenizer_directory, directory, spec.vocab, written));
  }
  RETURN_IF_ERROR(ParseModelSpec(written));  // The copied end tokens may be beyond the vocabulary.
  RETURN_IF_ERROR(WriteSynthWeights(spec, directory, options.weights, pool));
  return WriteJson(directory / "config.json", written);
}

}  // namespace divisi
