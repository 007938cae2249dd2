// The pre-tokenizer: cuts text into the pieces that byte pair encoding never merges across.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "divisi/core/json.h"
#include "divisi/core/result.h"
#include "divisi/model/regex.h"

namespace divisi {

// Text and where its pieces end: piece i is text[ends[i - 1], ends[i]), and none is empty.
struct Pieces {
  std::string text;
  std::vector<size_t> ends;
};

// Immutable; safe from any thread.
class PreTokenizer {
 public:
  // Reads the member "pre_tokenizer": Split, Digits and ByteLevel, alone or in a Sequence that ends
  // with ByteLevel.
  // Errors: kUnimplemented names what is outside; kInvalidArgument for a malformed member.
  static Result<PreTokenizer> Read(const Json& pre_tokenizer);

  // Requires: `text` is UTF-8. A pattern that reaches the matcher's limit leaves the rest whole.
  Pieces Cut(std::string text, Matcher& matcher) const;

 private:
  // What becomes of a match, in the terms of the Hugging Face library.
  enum class Behavior { kIsolated, kRemoved, kContiguous, kMergedWithPrevious, kMergedWithNext };
  struct Split {
    Regex regex;
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;
  };
  struct PrefixSpace {};  // A space before each piece that begins with none.
  struct Part {
    size_t begin = 0;
    size_t end = 0;
    bool match = false;
  };

  static Result<Behavior> ReadBehavior(const Json& split);
  Result<void> Add(const Json& step);
  Result<void> AddSplit(const Json& step);
  Result<void> AddByteLevel(const Json& step);
  static std::vector<Part> Parts(const Split& split, std::string_view piece, Matcher& matcher);
  static std::vector<Part> Join(std::vector<Part> parts, Behavior behavior);
  static Pieces Apply(const Split& split, Pieces pieces, Matcher& matcher);
  static Pieces Apply(const PrefixSpace&, Pieces pieces, Matcher&);

  std::vector<std::variant<Split, PrefixSpace>> steps_;
  bool byte_level_ = false;  // The last step has been read.
};

}  // namespace divisi
