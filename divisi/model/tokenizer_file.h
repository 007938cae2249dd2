// Reads tokenizer.json into the parts of a tokenizer.
// Source: the serialised form of the Hugging Face tokenizers library, version "1.0".
#pragma once

#include <string_view>
#include <vector>

#include "divisi/core/ids.h"
#include "divisi/core/result.h"
#include "divisi/model/added_tokens.h"
#include "divisi/model/bpe.h"
#include "divisi/model/pre_tokenizer.h"
#include "divisi/model/vocabulary.h"

namespace divisi {

// What tokenizer.json says, checked. "truncation" and "padding" are for training, and ignored.
struct TokenizerFile {
  Vocabulary vocabulary;                   // The model's entries and the added tokens.
  std::vector<Merge> merges;               // In the order of rank.
  std::array<TokenId, 256> byte_tokens{};  // BytePairs::kNoToken for a byte without an entry.
  bool ignore_merges = false;              // A piece that is an entry stays whole.
  bool nfc = false;                        // The normaliser: form C, or none.
  PreTokenizer pre_tokenizer;
  std::vector<AddedToken> added_tokens;
  std::vector<TokenId> prefix;  // What the post-processor puts before the text,
  std::vector<TokenId> suffix;  // and behind it.
};

// 150 thousand entries with their merges take about 10 MiB.
inline constexpr size_t kMaxTokenizerBytes = size_t{256} << 20;

// Errors: as Tokenizer::Parse.
Result<TokenizerFile> ReadTokenizerFile(std::string_view json);

}  // namespace divisi
