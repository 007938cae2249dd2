// Regular expressions as tokenizer.json files write them: Oniguruma's syntax, matched by PCRE2's
// just-in-time compiler. The one place that includes PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "divisi/core/result.h"

namespace divisi {

// A compiled pattern. Immutable; safe from any thread, each with its own Matcher.
class Regex {
 public:
  // Errors: kInvalidArgument for a pattern that does not compile; kUnimplemented for constructs
  // that mean different things in the two syntaxes and that no known tokenizer uses.
  static Result<Regex> Compile(std::string_view pattern);
  // Matches `text` itself.
  static Result<Regex> Literal(std::string_view text);
  static constexpr size_t kMaxPatternBytes = 16384;  // Known patterns have less than 1,000.

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

 private:
  friend class Matcher;
  struct Code;
  static Result<Regex> Make(std::string_view pattern, bool literal);
  explicit Regex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

// The room that matching needs, for one thread at a time. A pattern that backtracks without measure
// reaches a limit: the matcher then finds nothing any more, so that the rest of the text stays
// whole and the work of a matcher's life has a bound.
class Matcher {
 public:
  Matcher();
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;
  ~Matcher();

  struct Match {
    size_t begin = 0;
    size_t end = 0;
  };
  // The first match at or after `start`. last_end: where the match before ended; an empty match
  // there does not count, and the search goes on one character later.
  // Requires: `text` is UTF-8; start <= text.size(), at a character's first byte.
  std::optional<Match> Find(const Regex& regex, std::string_view text, size_t start,
                            std::optional<size_t> last_end);
  bool exhausted() const { return exhausted_; }

 private:
  struct Room;
  std::unique_ptr<Room> room_;
  bool exhausted_ = false;
};

}  // namespace divisi
