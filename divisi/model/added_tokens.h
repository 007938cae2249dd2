// Added tokens: texts that are one id wherever they stand, whatever the merges say.
// Source: the Hugging Face library's AddedVocabulary, whose matches these are.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "divisi/core/ids.h"
#include "divisi/core/result.h"
#include "divisi/model/regex.h"

namespace divisi {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;      // Left out of decoded text on request.
  bool normalized = false;   // Looked for in normalised text, else in the text as it came.
  bool single_word = false;  // Matches only where no word character touches it.
  bool lstrip = false;       // Takes the white space before it along,
  bool rstrip = false;       // and that behind it.
};

// Finds added tokens in a text. Immutable; safe from any thread.
class AddedTokenFinder {
 public:
  // Bounds the work per byte of text: a match is looked for by walking a trie.
  static constexpr size_t kMaxContentBytes = 1024;

  // Errors: kInvalidArgument for a content that is empty or longer than kMaxContentBytes.
  static Result<AddedTokenFinder> Make(std::span<const AddedToken> tokens);

  // `text` in order, whole but for stripped white space: a token, or the text between tokens.
  struct Section {
    std::string_view text;
    std::optional<TokenId> token;
  };
  // Leftmost matches, the longest of those that begin together. Requires: `text` is UTF-8.
  std::vector<Section> Divide(std::string_view text, Matcher& matcher) const;

 private:
  struct Edge {
    unsigned char byte = 0;
    uint32_t target = 0;
  };
  struct Node {
    std::vector<Edge> edges;  // In the order of the bytes.
    int32_t token = -1;       // Index into tokens_ of the content that ends here.
  };
  struct Found {
    int32_t token = -1;
    size_t length = 0;
  };

  void Insert(std::string_view content, int32_t token);
  Found LongestAt(std::string_view text, size_t position) const;
  bool TouchesWord(std::string_view text, size_t begin, size_t end, Matcher& matcher) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<bool, 256> begins_{};  // Whether a content begins with the byte.
  std::optional<Regex> word_;       // A word character; only when a token asks for it.
};

}  // namespace divisi
