#include "divisi/model/tokenizer.h"

#include <utility>

#include "divisi/core/file.h"
#include "divisi/core/utf8.h"
#include "divisi/model/added_tokens.h"
#include "divisi/model/bpe.h"
#include "divisi/model/byte_level.h"
#include "divisi/model/pre_tokenizer.h"
#include "divisi/model/tokenizer_file.h"
#include "divisi/model/unicode.h"
#include "divisi/model/vocabulary.h"

namespace divisi {

struct Tokenizer::State {
  Vocabulary vocabulary;
  BytePairs byte_pairs;
  bool ignore_merges;
  bool nfc;
  PreTokenizer pre_tokenizer;
  AddedTokenFinder as_written;     // The added tokens that are looked for in the text as it came,
  AddedTokenFinder in_normalised;  // and those in normalised text.
  std::vector<TokenId> prefix;
  std::vector<TokenId> suffix;

  void AppendPieces(std::string text, Matcher& matcher, std::vector<TokenId>& ids) const;
  void AppendText(std::string_view text, Matcher& matcher, std::vector<TokenId>& ids) const;
};

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::Parse(std::string_view tokenizer_json) {
  ASSIGN_OR_RETURN(TokenizerFile file, ReadTokenizerFile(tokenizer_json));
  std::vector<AddedToken> as_written;
  std::vector<AddedToken> in_normalised;
  for (AddedToken& token : file.added_tokens) {
    if (!token.normalized) {
      as_written.push_back(std::move(token));
    } else {
      if (file.nfc) token.content = ToNfc(token.content);
      in_normalised.push_back(std::move(token));
    }
  }
  auto raw_finder = AddedTokenFinder::Make(as_written);
  if (!raw_finder) return WithContext(raw_finder.error(), "tokenizer.json");
  // Bounded as they are looked for: NFC may lengthen a text threefold.
  auto normalised_finder = AddedTokenFinder::Make(in_normalised);
  if (!normalised_finder) return WithContext(normalised_finder.error(), "tokenizer.json");
  return Tokenizer(std::make_unique<State>(State{
      .vocabulary = std::move(file.vocabulary),
      .byte_pairs = BytePairs(file.byte_tokens, file.merges),
      .ignore_merges = file.ignore_merges,
      .nfc = file.nfc,
      .pre_tokenizer = std::move(file.pre_tokenizer),
      .as_written = *std::move(raw_finder),
      .in_normalised = *std::move(normalised_finder),
      .prefix = std::move(file.prefix),
      .suffix = std::move(file.suffix),
  }));
}

Result<Tokenizer> Tokenizer::Load(const std::filesystem::path& directory) {
  ASSIGN_OR_RETURN(const std::string text,
                   ReadFile(directory / "tokenizer.json", kMaxTokenizerBytes));
  Result<Tokenizer> parsed = Parse(text);
  if (!parsed) return WithContext(parsed.error(), directory.string());
  return parsed;
}

std::vector<TokenId> Tokenizer::Encode(std::string_view text, bool add_special_tokens) const {
  std::vector<TokenId> ids;
  if (add_special_tokens) ids = state_->prefix;
  ids.reserve(ids.size() + text.size() / 4 + state_->suffix.size());  // 4 bytes a token, about.
  std::string repaired;
  if (!IsUtf8(text)) {
    repaired = RepairUtf8(text);
    text = repaired;
  }
  Matcher matcher;
  for (const auto& section : state_->as_written.Divide(text, matcher)) {
    if (section.token) {
      ids.push_back(*section.token);
    } else {
      state_->AppendText(section.text, matcher, ids);
    }
  }
  if (add_special_tokens) ids.insert(ids.end(), state_->suffix.begin(), state_->suffix.end());
  return ids;
}

// Text without the added tokens that are looked for as written.
void Tokenizer::State::AppendText(std::string_view text, Matcher& matcher,
                                  std::vector<TokenId>& ids) const {
  std::string normalised;
  if (nfc && !IsPlainNfc(text)) {
    normalised = ToNfc(text);
    text = normalised;
  }
  for (const auto& section : in_normalised.Divide(text, matcher)) {
    if (section.token) {
      ids.push_back(*section.token);
    } else {
      AppendPieces(std::string(section.text), matcher, ids);
    }
  }
}

// Normalised text without added tokens.
void Tokenizer::State::AppendPieces(std::string text, Matcher& matcher,
                                    std::vector<TokenId>& ids) const {
  const Pieces pieces = pre_tokenizer.Cut(std::move(text), matcher);
  size_t begin = 0;
  for (const size_t end : pieces.ends) {
    const std::string_view piece = std::string_view(pieces.text).substr(begin, end - begin);
    begin = end;
    if (ignore_merges) {
      if (const auto whole = vocabulary.FindEntry(ToByteLevel(piece))) {
        ids.push_back(*whole);
        continue;
      }
    }
    byte_pairs.Append(piece, ids);
  }
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (!skip_special_tokens || !IsSpecial(id)) bytes += TokenBytes(id);
  }
  return RepairUtf8(bytes);
}

std::string_view Tokenizer::TokenBytes(TokenId id) const { return state_->vocabulary.Bytes(id); }
bool Tokenizer::IsSpecial(TokenId id) const { return state_->vocabulary.IsSpecial(id); }
std::optional<TokenId> Tokenizer::FindToken(std::string_view content) const {
  return state_->vocabulary.Find(content);
}
int Tokenizer::vocab_size() const { return state_->vocabulary.end_id(); }

}  // namespace divisi
