// Byte-level BPE as tokenizer.json describes it: normaliser, pre-tokenizer, merges, added tokens.
// Immutable after loading; safe from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "divisi/core/ids.h"
#include "divisi/core/result.h"

namespace divisi {

class Tokenizer {
 public:
  // tokenizer_json: the text of tokenizer.json.
  // Errors: kInvalidArgument for a malformed or contradictory file; kUnimplemented for a model,
  // normaliser, pre-tokenizer, post-processor or decoder outside what byte-level BPE models use.
  static Result<Tokenizer> Parse(std::string_view tokenizer_json);
  // Reads directory/tokenizer.json.
  static Result<Tokenizer> Load(const std::filesystem::path& directory);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Ids of `text` (UTF-8; broken bytes are treated as U+FFFD). Added tokens written in the text are
  // recognised, special ones too. With add_special_tokens, what the post-processor adds (a BOS,
  // say) is added.
  std::vector<TokenId> Encode(std::string_view text, bool add_special_tokens) const;

  // Text of `ids`, each invalid UTF-8 maximal subpart replaced by U+FFFD. Ids outside the
  // vocabulary contribute nothing.
  std::string Decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

  // The raw bytes that `id` stands for (may be a part of a character); empty for unknown ids.
  std::string_view TokenBytes(TokenId id) const;
  bool IsSpecial(TokenId id) const;
  std::optional<TokenId> FindToken(std::string_view content) const;  // Added tokens and vocabulary.
  int vocab_size() const;  // One more than the largest id.

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Turns a stream of tokens into text without ever giving half a UTF-8 character: bytes of an
// unfinished one are kept until it is complete or can't be.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true)
      : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens) {}
  // The text that `id` completes; may be empty.
  std::string Push(TokenId id);
  // What is left at the end: at most one U+FFFD per broken subpart.
  std::string Finish();
  // All Push results and Finish joined equal Tokenizer::Decode of all ids.

 private:
  const Tokenizer* tokenizer_;  // Outlives this.
  bool skip_special_tokens_;
  std::string pending_;  // At most 3 bytes: a proper prefix of a well-formed sequence.
};

}  // namespace divisi
