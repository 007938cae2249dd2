#include "divisi/model/synth_tokenizer.h"

#include <array>

#include "divisi/core/utf8.h"

namespace divisi {
namespace {

constexpr int kBytes = 256;

struct Special {
  int id;
  const char* content;
};
std::array<Special, 3> SpecialsOf(const SynthTokens& tokens) {
  return {Special{tokens.end_of_text, "<|endoftext|>"}, Special{tokens.im_start, "<|im_start|>"},
          Special{tokens.im_end, "<|im_end|>"}};
}

Json::Object SpecialToken(const Special& special) {
  return {{"content", special.content}, {"lstrip", false}, {"normalized", false}, {"rstrip", false},
          {"single_word", false},       {"special", true}};
}

std::string Utf8(int code) {
  std::string text;
  AppendUtf8(static_cast<char32_t>(code), text);
  return text;
}

// The 256 bytes as characters, in id order: printable ones stand for themselves, and the others, in
// order, are the characters from U+0100 on. Source: bytes_to_unicode of GPT-2's encoder.
std::vector<std::string> ByteAlphabet() {
  const auto printable = [](int byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
  };
  std::vector<std::string> alphabet;
  for (int byte = 0; byte < kBytes; ++byte) {
    if (printable(byte)) alphabet.push_back(Utf8(byte));
  }
  const int stand_ins = kBytes - static_cast<int>(alphabet.size());
  for (int i = 0; i < stand_ins; ++i) alphabet.push_back(Utf8(0x100 + i));
  return alphabet;
}

// A space in the byte alphabet and the id in letters: distinct ids, distinct texts.
std::string FillerText(int id) {
  std::string letters;
  for (int left = id; left > 0; left /= 26) {
    letters.insert(letters.begin(), static_cast<char>('a' + left % 26));
  }
  return "\u0120" + letters;
}

Json ByteLevel() {
  return Json::Object{{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", false},
                      {"use_regex", false}};
}

Json PreTokenizer() {
  // Qwen2's, from its published tokenizer.json.
  constexpr const char* kPattern =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
      R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
  const Json split = Json::Object{{"type", "Split"},
                                  {"pattern", Json::Object{{"Regex", kPattern}}},
                                  {"behavior", "Isolated"},
                                  {"invert", false}};
  return Json::Object{{"type", "Sequence"}, {"pretokenizers", Json::Array{split, ByteLevel()}}};
}

Json BpeModel(const SynthTokens& tokens) {
  Json::Object vocab;
  vocab.reserve(static_cast<size_t>(tokens.im_end) + 1);
  for (std::string& character : ByteAlphabet()) {
    vocab.emplace_back(std::move(character), static_cast<int>(vocab.size()));
  }
  for (int id = kBytes; id < tokens.end_of_text; ++id) vocab.emplace_back(FillerText(id), id);
  return Json::Object{{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", ""},
                      {"end_of_word_suffix", ""},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"ignore_merges", false},
                      {"vocab", std::move(vocab)},
                      {"merges", Json::MakeArray()}};
}

}  // namespace

Result<SynthTokens> SynthTokensOf(const ModelSpec& spec) {
  constexpr int kLeast = kBytes + 3;
  if (spec.vocab < kLeast) {
    return Error{Code::kOutOfRange,
                 Format("vocab_size is {}, but bytes and special tokens need {}; enlarge it, or "
                        "give a tokenizer of your own",
                        spec.vocab, kLeast)};
  }
  return SynthTokens{
      .end_of_text = spec.vocab - 3, .im_start = spec.vocab - 2, .im_end = spec.vocab - 1};
}

Json SynthTokenizer(const SynthTokens& tokens) {
  Json added = Json::MakeArray();
  for (const Special& special : SpecialsOf(tokens)) {
    Json::Object token = {{"id", special.id}};
    for (Json::Member& member : SpecialToken(special)) token.push_back(std::move(member));
    added.Append(std::move(token));
  }
  return Json::Object{{"version", "1.0"},
                      {"truncation", nullptr},
                      {"padding", nullptr},
                      {"added_tokens", std::move(added)},
                      {"normalizer", Json::Object{{"type", "NFC"}}},
                      {"pre_tokenizer", PreTokenizer()},
                      {"post_processor", ByteLevel()},
                      {"decoder", ByteLevel()},
                      {"model", BpeModel(tokens)}};
}

Json SynthTokenizerConfig(const SynthTokens& tokens, int max_positions) {
  constexpr const char* kChatMl =
      "{%- for message in messages %}{{- '<|im_start|>' + message['role'] + '\\n' + "
      "message['content'] + '<|im_end|>' + '\\n' }}{%- endfor %}"
      "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";
  Json::Object decoder;
  for (const Special& special : SpecialsOf(tokens)) {
    decoder.emplace_back(Format("{}", special.id), SpecialToken(special));
  }
  return Json::Object{{"add_bos_token", false},
                      {"add_prefix_space", false},
                      {"added_tokens_decoder", std::move(decoder)},
                      {"additional_special_tokens", Json::Array{"<|im_start|>", "<|im_end|>"}},
                      {"bos_token", nullptr},
                      {"chat_template", kChatMl},
                      {"clean_up_tokenization_spaces", false},
                      {"eos_token", "<|im_end|>"},
                      {"errors", "replace"},
                      {"model_max_length", max_positions},
                      {"pad_token", "<|endoftext|>"},
                      {"split_special_tokens", false},
                      {"tokenizer_class", "Qwen2Tokenizer"},
                      {"unk_token", nullptr}};
}

Json SynthGenerationConfig(const SynthTokens& tokens) {
  return Json::Object{{"bos_token_id", tokens.end_of_text},
                      {"eos_token_id", Json::Array{tokens.im_end, tokens.end_of_text}},
                      {"pad_token_id", tokens.end_of_text}};
}

}  // namespace divisi
