// One choice's tokens as the text its client sees: characters made whole, stop strings found, and
// each token's logprobs kept beside its text.
//
// A stop string ends the output where its last byte completes; of several that complete at the same
// byte, the longest counts. Text that may be the beginning of a stop string is held back until it
// is one or can't be, so that what was given out never has to be taken back. Whichever way the text
// is cut into tokens, the outcome is the same: it is a function of the text.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "divisi/model/sampler.h"
#include "divisi/model/tokenizer.h"

namespace divisi {

// Finds the earliest-ending occurrence of any of some strings in text that comes in pieces.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);

  struct Found {
    bool stopped = false;
    size_t begin = 0;  // Of the match, in bytes since the start of all text.
    size_t end = 0;
  };
  // Takes more text. After a match, takes no more. Requires: no match was found before.
  Found Push(std::string_view text);
  // Bytes at the end of the text so far that may be the start of a stop string.
  size_t HeldBytes() const;

 private:
  // Knuth, Morris, Pratt: after each byte, `matched` is the length of the longest prefix of `text`
  // that the input ends with, which is exactly what must be held back for this string.
  struct Stop {
    std::string text;
    std::vector<size_t> fallback;  // fallback[k]: longest proper border of text[0, k).
    size_t matched = 0;
  };
  std::vector<Stop> stops_;
  size_t consumed_ = 0;
};

class TextOutput {
 public:
  struct Options {
    std::vector<std::string> stop;
    bool include_stop = false;        // Keep the stop string at the end of the text.
    bool skip_special_tokens = true;
    bool keep_tokens = false;         // Give out tokens, for logprobs.
  };

  // A token whose text has been given out.
  struct Token {
    SampledToken sampled;
    int64_t text_offset = 0;  // Characters (code points) before it in this choice's text.
  };
  struct Piece {
    std::string text;
    std::vector<Token> tokens;  // With keep_tokens: those whose text ends in what was given out.
    bool stopped = false;       // A stop string was found; nothing follows.
  };

  // tokenizer outlives this.
  TextOutput(const Tokenizer& tokenizer, Options options);

  // The text that `token` frees for the client. Requires: not stopped, not finished.
  Piece Push(SampledToken token);
  // The rest, when the tokens have ended: unfinished characters and held-back text, which may still
  // complete a stop string. terminator: the token that ended it all and has no part in the text;
  // with keep_tokens it is given out too, last, unless a stop string cut the text before.
  // Requires: not stopped.
  Piece Finish(std::optional<SampledToken> terminator = std::nullopt);

 private:
  struct Waiting {
    Token token;
    size_t begin = 0;  // Bytes since the start of all text.
    size_t end = 0;
  };
  Piece Take(std::string text, bool last);
  void ReleaseTokens(size_t boundary, bool last, Piece& piece);

  Options options_;
  StreamDecoder decoder_;
  StopMatcher matcher_;
  std::string held_;             // Text not given out.
  size_t given_bytes_ = 0;
  size_t total_bytes_ = 0;       // given_bytes_ + held_.size()
  int64_t total_characters_ = 0;
  std::deque<Waiting> waiting_;  // Tokens whose text is held; as many as the held bytes need.
};

}  // namespace divisi
