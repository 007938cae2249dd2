#define PCRE2_CODE_UNIT_WIDTH 8
#include "divisi/model/regex.h"

#include <pcre2.h>

#include <array>
#include <utility>

#include "divisi/core/check.h"
#include "divisi/core/utf8.h"

namespace divisi {
namespace {

// Backtracking points of one search. Tokenizers' patterns need a handful; ten thousand times that
// still ends within milliseconds.
constexpr uint32_t kMatchLimit = 100'000;
constexpr uint32_t kHeapLimitKib =
    16 * 1024;                        // Of the interpreter, used when the JIT's stack ends.
constexpr uint32_t kMaxNesting = 64;  // Of parentheses in a pattern.

Error Unsupported(std::string_view pattern, std::string_view construct) {
  return {
      Code::kUnimplemented,
      Format("the regular expression {} uses {}, which Divisi does not read", pattern, construct)};
}

// Oniguruma's \w outside and inside a class: outside it takes its table of Latin-1, which has the
// superscripts and fractions.
constexpr std::string_view kWord =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}])";
constexpr std::string_view kNotWord =
    R"([^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}])";
constexpr std::string_view kWordInClass = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

// PCRE2's text of what stands after a backslash in Oniguruma's; empty when the two agree.
std::string_view Translation(char escaped, bool in_class) {
  switch (escaped) {
    // PCRE2's \s has U+180E, which left White_Space in Unicode 6.3.
    case 's':
      return "\\p{White_Space}";
    case 'S':
      return "\\P{White_Space}";
    // PCRE2's \w lacks marks and most connectors.
    case 'w':
      return in_class ? kWordInClass : kWord;
    case 'W':
      return in_class ? "" : kNotWord;
    default:
      return {};
  }
}

// `pattern` in PCRE2's syntax. Only what differs is looked at; PCRE2 judges the rest.
Result<std::string> Translate(std::string_view pattern) {
  if (pattern.starts_with("(*")) return Unsupported(pattern, "a leading (*VERB)");
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    const std::string_view rest = pattern.substr(i);
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      // Hexadecimal digits there, horizontal blanks here; Q quotes here alone.
      if (std::string_view("hHQEKGbBCX").find(escaped) != std::string_view::npos ||
          (escaped == 'W' && in_class)) {
        return Unsupported(pattern, Format("\\{}", escaped));
      }
      const std::string_view translation = Translation(escaped, in_class);
      if (translation.empty()) {
        out += {c, escaped};
      } else {
        out += translation;
      }
      continue;
    }
    if (in_class && rest.starts_with("&&")) return Unsupported(pattern, "&& in a class");
    if (in_class && rest.starts_with("[") && !rest.starts_with("[:")) {
      return Unsupported(pattern, "a class within a class");
    }
    if (in_class && rest.starts_with("[:")) {  // A POSIX class: its ']' is not ours.
      const size_t end = rest.find(":]");
      if (end == std::string_view::npos) return Unsupported(pattern, "[: without :]");
      out += rest.substr(0, end + 2);
      i += end + 1;
      continue;
    }
    if (!in_class && c == '[') {
      in_class = true;
      // A ']' right after '[' or '[^' is a member in both syntaxes.
      const size_t head = rest.starts_with("[^]") ? 3 : rest.starts_with("[]") ? 2 : 1;
      out += rest.substr(0, head);
      i += head - 1;
      continue;
    }
    if (in_class && c == ']') in_class = false;
    out += c;
  }
  return out;
}

std::string MessageOf(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR Units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct Regex::Code {
  explicit Code(pcre2_code* compiled) : code(compiled) {}
  Code(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }
  pcre2_code* const code;
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::Compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return Error{divisi::Code::kInvalidArgument,
                 Format("a regular expression has {} bytes; {} are supported", pattern.size(),
                        kMaxPatternBytes)};
  }
  ASSIGN_OR_RETURN(const std::string translated, Translate(pattern));
  return Make(translated, false);
}

Result<Regex> Regex::Literal(std::string_view text) {
  if (text.empty() || text.size() > kMaxPatternBytes) {
    return Error{divisi::Code::kInvalidArgument,
                 Format("a split string has {} bytes, not 1..{}", text.size(), kMaxPatternBytes)};
  }
  return Make(text, true);
}

Result<Regex> Regex::Make(std::string_view pattern, bool literal) {
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  CHECK(context != nullptr, "out of memory");
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context, kMaxNesting);
  // In Oniguruma's Ruby syntax ^ and $ are the ends of lines.
  const uint32_t options =
      PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(Units(pattern), pattern.size(), options, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (code == nullptr) {
    return Error{divisi::Code::kInvalidArgument,
                 Format("the regular expression {} is wrong at byte {}: {}", pattern, offset,
                        MessageOf(error))};
  }
  // Without the JIT (too large a pattern, a system that forbids it) the interpreter matches.
  (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return Regex(std::make_unique<Code>(code));
}

struct Matcher::Room {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  ~Room() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
};

Matcher::Matcher() : room_(std::make_unique<Room>()) {
  CHECK(room_->data != nullptr && room_->context != nullptr, "out of memory");
  pcre2_set_match_limit(room_->context, kMatchLimit);
  pcre2_set_heap_limit(room_->context, kHeapLimitKib);
}

Matcher::~Matcher() = default;

std::optional<Matcher::Match> Matcher::Find(const Regex& regex, std::string_view text, size_t start,
                                            std::optional<size_t> last_end) {
  const auto match = [&](uint32_t more) {
    return pcre2_match(regex.code_->code, Units(text), text.size(), start,
                       PCRE2_NO_UTF_CHECK | more, room_->data, room_->context);
  };
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(room_->data);
  while (!exhausted_) {
    int found = match(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match(PCRE2_NO_JIT);
    if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
    // A found of 0 only says that there are groups, of which we keep none. \K in a group that is
    // called from a lookaround could move a match's begin before `start` or behind its end.
    if (found < 0 || ends[0] < start || ends[1] < ends[0]) break;
    if (ends[1] > ends[0] || last_end != ends[0]) return Match{ends[0], ends[1]};
    if (start == text.size()) return std::nullopt;
    do {
      ++start;
    } while (start < text.size() && IsUtf8Continuation(text[start]));
  }
  exhausted_ = true;
  return std::nullopt;
}

}  // namespace divisi
