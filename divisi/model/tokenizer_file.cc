#include "divisi/model/tokenizer_file.h"

#include <algorithm>
#include <string>
#include <utility>

#include "divisi/core/json.h"
#include "divisi/model/byte_level.h"

namespace divisi {
namespace {

Error Malformed(std::string_view what) {
  return {Code::kInvalidArgument, Format("tokenizer.json: {}", what)};
}

Error Unsupported(std::string_view what) {
  return {Code::kUnimplemented,
          Format("tokenizer.json: {} is not supported; byte-level BPE is", what)};
}

const Json& Member(const Json& object, std::string_view name) {
  static const Json null;
  const Json* member = object.Find(name);
  return member == nullptr ? null : *member;
}

std::string_view TypeOf(const Json& part) {
  const Json& type = Member(part, "type");
  return type.is_string() ? std::string_view(type.as_string()) : "(no type)";
}

Result<bool> ReadFlag(const Json& object, std::string_view name, bool absent = false) {
  const Json& flag = Member(object, name);
  if (flag.is_null()) return absent;
  if (!flag.is_bool()) return Malformed(Format("{} is a {}, not a boolean", name, flag.TypeName()));
  return flag.as_bool();
}

// What a Sequence holds under `name`, or the part itself.
Result<std::vector<const Json*>> Flatten(const Json& part, std::string_view name) {
  if (TypeOf(part) != "Sequence") return std::vector<const Json*>{&part};
  const Json& members = Member(part, name);
  if (!members.is_array()) return Malformed(Format("a Sequence has no array {}", name));
  std::vector<const Json*> parts;
  for (const Json& member : members.as_array()) parts.push_back(&member);
  return parts;
}

// The settings of BPE models that are not byte-level, which must be off.
Result<void> CheckModelKind(const Json& model) {
  if (!model.is_object()) return Malformed("there is no model");
  const Json& type = Member(model, "type");  // Old files leave it out.
  if (!type.is_null() && TypeOf(model) != "BPE") {
    return Unsupported(Format("model {}", TypeOf(model)));
  }
  const Json& dropout = Member(model, "dropout");
  if (!dropout.is_null() && !(dropout.is_number() && dropout.as_double() == 0)) {
    return Unsupported("model.dropout");
  }
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json& affix = Member(model, name);
    if (!affix.is_null() && !(affix.is_string() && affix.as_string().empty())) {
      return Unsupported(Format("model.{}", name));
    }
  }
  ASSIGN_OR_RETURN(const bool byte_fallback, ReadFlag(model, "byte_fallback"));
  if (byte_fallback) return Unsupported("model.byte_fallback");
  return {};
}

Result<void> ReadVocabulary(const Json& model, TokenizerFile& file) {
  const Json& vocab = Member(model, "vocab");
  if (!vocab.is_object()) return Malformed("model.vocab is not an object");
  file.vocabulary.Reserve(vocab.as_object().size());
  for (const auto& [text, id] : vocab.as_object()) {
    if (text.empty()) return Malformed("model.vocab has an empty token");
    if (!id.is_int()) return Malformed(Format("the id of \"{}\" is no integer", text));
    RETURN_IF_ERROR(file.vocabulary.AddEntry(text, id.as_int()));
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto id = file.vocabulary.Find(ToByteLevel(std::string(1, static_cast<char>(byte))));
    file.byte_tokens[byte] = id.value_or(BytePairs::kNoToken);
    // With every byte at hand no text is unknown, and then the setting is idle.
    if (!id && !Member(model, "unk_token").is_null()) {
      return Unsupported("model.unk_token with a vocabulary that lacks bytes");
    }
  }
  return {};
}

// The two texts of a merge: "a b", or ["a", "b"].
Result<std::pair<std::string_view, std::string_view>> SplitMerge(const Json& merge) {
  if (merge.is_string()) {
    const std::string_view text = merge.as_string();
    const size_t space = text.find(' ');
    if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos) {
      return std::pair(text.substr(0, space), text.substr(space + 1));
    }
  } else if (merge.is_array() && merge.as_array().size() == 2) {
    const Json& left = merge.as_array()[0];
    const Json& right = merge.as_array()[1];
    if (left.is_string() && right.is_string()) {
      return std::pair<std::string_view, std::string_view>(left.as_string(), right.as_string());
    }
  }
  return Malformed(Format("the merge {} is no pair of tokens", merge.Dump()));
}

Result<void> ReadMerges(const Json& model, TokenizerFile& file) {
  const Json& merges = Member(model, "merges");
  if (!merges.is_array()) return Malformed("model.merges is not an array");
  file.merges.reserve(merges.as_array().size());
  std::string joined;
  for (const Json& merge : merges.as_array()) {
    ASSIGN_OR_RETURN(const auto pair, SplitMerge(merge));
    joined = pair.first;
    joined += pair.second;
    const auto left = file.vocabulary.Find(pair.first);
    const auto right = file.vocabulary.Find(pair.second);
    const auto merged = file.vocabulary.Find(joined);
    if (!left || !right || !merged) {
      return Malformed(
          Format("the merge {} has a token that is not in the vocabulary", merge.Dump()));
    }
    file.merges.push_back({*left, *right, *merged});
  }
  return {};
}

Result<AddedToken> ReadAddedToken(const Json& json) {
  const Json& content = Member(json, "content");
  const Json& id = Member(json, "id");
  if (!content.is_string() || !id.is_int()) {
    return Malformed("an added token lacks a content or an id");
  }
  if (id.as_int() < 0 || id.as_int() > Vocabulary::kMaxId) {
    return Malformed(Format("added token {} is not in 0..{}", id.as_int(), Vocabulary::kMaxId));
  }
  AddedToken token{.id = static_cast<TokenId>(id.as_int()), .content = content.as_string()};
  ASSIGN_OR_RETURN(token.special, ReadFlag(json, "special"));
  ASSIGN_OR_RETURN(token.normalized, ReadFlag(json, "normalized", !token.special));
  ASSIGN_OR_RETURN(token.single_word, ReadFlag(json, "single_word"));
  ASSIGN_OR_RETURN(token.lstrip, ReadFlag(json, "lstrip"));
  ASSIGN_OR_RETURN(token.rstrip, ReadFlag(json, "rstrip"));
  return token;
}

Result<void> ReadAddedTokens(const Json& root, TokenizerFile& file) {
  const Json& tokens = Member(root, "added_tokens");
  if (tokens.is_null()) return {};
  if (!tokens.is_array()) return Malformed("added_tokens is not an array");
  for (const Json& json : tokens.as_array()) {
    ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(json));
    if (token.content.empty()) continue;  // As the library does.
    RETURN_IF_ERROR(file.vocabulary.AddToken(token.content, token.id, token.special));
    file.added_tokens.push_back(std::move(token));
  }
  return {};
}

Result<void> ReadNormalizer(const Json& normalizer, TokenizerFile& file) {
  if (normalizer.is_null()) return {};
  ASSIGN_OR_RETURN(const auto steps, Flatten(normalizer, "normalizers"));
  for (const Json* step : steps) {
    if (TypeOf(*step) != "NFC") return Unsupported(Format("normalizer {}", TypeOf(*step)));
    file.nfc = true;
  }
  return {};
}

// The ids of a template's special token.
Result<std::vector<TokenId>> ReadTemplateToken(const Json& processor, const Json& item,
                                               const Vocabulary& vocabulary) {
  const Json& name = Member(item, "id");
  if (!name.is_string()) return Malformed("a template's SpecialToken has no id");
  const Json& ids = Member(Member(Member(processor, "special_tokens"), name.as_string()), "ids");
  if (!ids.is_array()) {
    return Malformed(Format("the template's special token \"{}\" has no ids", name.as_string()));
  }
  std::vector<TokenId> tokens;
  for (const Json& id : ids.as_array()) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() > Vocabulary::kMaxId ||
        !vocabulary.Has(static_cast<TokenId>(id.as_int()))) {
      return Malformed(Format("the template's special token \"{}\" has the id {}, which is unknown",
                              name.as_string(), id.Dump()));
    }
    tokens.push_back(static_cast<TokenId>(id.as_int()));
  }
  return tokens;
}

// What the template puts around one text. Its form for pairs of texts is not read.
Result<void> ReadTemplate(const Json& processor, TokenizerFile& file) {
  const Json& single = Member(processor, "single");
  if (!single.is_array()) return Unsupported("a TemplateProcessing whose single is not an array");
  std::vector<TokenId> prefix;
  std::vector<TokenId> suffix;
  bool text_seen = false;
  for (const Json& item : single.as_array()) {
    if (item.Find("Sequence") != nullptr) {
      if (text_seen) return Unsupported("a TemplateProcessing that repeats the text");
      text_seen = true;
      continue;
    }
    ASSIGN_OR_RETURN(const std::vector<TokenId> tokens,
                     ReadTemplateToken(processor, Member(item, "SpecialToken"), file.vocabulary));
    std::vector<TokenId>& side = text_seen ? suffix : prefix;
    side.insert(side.end(), tokens.begin(), tokens.end());
  }
  if (!text_seen) return Malformed("a TemplateProcessing leaves the text out");
  file.prefix.insert(file.prefix.begin(), prefix.begin(), prefix.end());
  file.suffix.insert(file.suffix.end(), suffix.begin(), suffix.end());
  return {};
}

Result<void> ReadPostProcessor(const Json& processor, TokenizerFile& file) {
  if (processor.is_null()) return {};
  ASSIGN_OR_RETURN(const auto steps, Flatten(processor, "processors"));
  for (const Json* step : steps) {
    if (TypeOf(*step) == "ByteLevel") continue;  // Mends the offsets, which we do not give.
    if (TypeOf(*step) != "TemplateProcessing") {
      return Unsupported(Format("post_processor {}", TypeOf(*step)));
    }
    RETURN_IF_ERROR(ReadTemplate(*step, file));
  }
  return {};
}

Result<void> CheckDecoder(const Json& decoder) {
  if (decoder.is_null()) return Unsupported("a tokenizer without a decoder");
  ASSIGN_OR_RETURN(const auto steps, Flatten(decoder, "decoders"));
  if (steps.empty()) return Unsupported("an empty decoder");
  for (const Json* step : steps) {
    if (TypeOf(*step) != "ByteLevel") return Unsupported(Format("decoder {}", TypeOf(*step)));
  }
  return {};
}

}  // namespace

Result<TokenizerFile> ReadTokenizerFile(std::string_view json) {
  if (json.size() > kMaxTokenizerBytes) {
    return Malformed(
        Format("it has {} bytes; at most {} are read", json.size(), kMaxTokenizerBytes));
  }
  Result<Json> parsed = Json::Parse(json);
  if (!parsed) return WithContext(parsed.error(), "tokenizer.json");
  const Json root = std::move(parsed).value();
  TokenizerFile file;
  const Json& model = Member(root, "model");
  RETURN_IF_ERROR(CheckModelKind(model));
  RETURN_IF_ERROR(ReadNormalizer(Member(root, "normalizer"), file));
  RETURN_IF_ERROR(CheckDecoder(Member(root, "decoder")));
  Result<PreTokenizer> pre_tokenizer = PreTokenizer::Read(Member(root, "pre_tokenizer"));
  if (!pre_tokenizer) return WithContext(pre_tokenizer.error(), "tokenizer.json");
  file.pre_tokenizer = std::move(pre_tokenizer).value();
  RETURN_IF_ERROR(ReadVocabulary(model, file));
  RETURN_IF_ERROR(ReadMerges(model, file));
  ASSIGN_OR_RETURN(file.ignore_merges, ReadFlag(model, "ignore_merges"));
  RETURN_IF_ERROR(ReadAddedTokens(root, file));
  RETURN_IF_ERROR(ReadPostProcessor(Member(root, "post_processor"), file));
  return file;
}

}  // namespace divisi
