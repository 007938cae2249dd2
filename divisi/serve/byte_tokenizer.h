// For tests and fuzzers: a tokenizer of single bytes, a few longer tokens, and one special token,
// made in place so that no file is needed.
#pragma once

#include <string>

#include "divisi/core/json.h"
#include "divisi/core/utf8.h"
#include "divisi/model/tokenizer.h"

namespace divisi {

inline constexpr TokenId kByteTokenizerEnd = 256;      // "<end>", special; ids below are bytes.
inline constexpr TokenId kByteTokenizerLonger =
    257;  // "ab", "aba", "EN", " END" and so on from here.

// The character that stands for a byte in tokenizer.json. Source: GPT-2's bytes_to_unicode.
inline std::string ByteLevelCharacter(int byte) {
  const auto printable = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  };
  int code = byte;
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  std::string text;
  AppendUtf8(static_cast<char32_t>(code), text);
  return text;
}

inline Tokenizer MakeByteTokenizer() {
  Json vocabulary = Json::MakeObject();
  for (int byte = 0; byte < 256; ++byte) vocabulary.Set(ByteLevelCharacter(byte), byte);
  TokenId next = kByteTokenizerLonger;
  for (const std::string text : {"ab", "aba", "bab", "EN", " END", "\xE6\x97", "\x97\xA5",
                                 "\xA5"
                                 "a"}) {
    std::string written;
    for (const char c : text) written += ByteLevelCharacter(static_cast<unsigned char>(c));
    vocabulary.Set(written, next++);
  }
  const Json byte_level = Json::Object{{"type", "ByteLevel"},
                                       {"add_prefix_space", false},
                                       {"trim_offsets", false},
                                       {"use_regex", true}};
  const Json end = Json::Object{{"id", kByteTokenizerEnd},  {"content", "<end>"},
                                {"single_word", false},     {"lstrip", false},
                                {"rstrip", false},          {"normalized", false},
                                {"special", true}};
  const Json file = Json::Object{{"version", "1.0"},
                                 {"added_tokens", Json::Array{end}},
                                 {"normalizer", nullptr},
                                 {"pre_tokenizer", byte_level},
                                 {"post_processor", nullptr},
                                 {"decoder", byte_level},
                                 {"model", Json::Object{{"type", "BPE"},
                                                        {"vocab", std::move(vocabulary)},
                                                        {"merges", Json::MakeArray()}}}};
  auto tokenizer = Tokenizer::Parse(file.Dump());
  CHECK(tokenizer.ok(), "{}", tokenizer.error().message);
  return *std::move(tokenizer);
}

}  // namespace divisi
