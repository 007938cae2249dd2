#include "divisi/model/jinja_lexer.h"

#include <algorithm>
#include <array>

#include "divisi/core/utf8.h"
#include "divisi/model/jinja_text.h"

namespace divisi {
namespace {

using Kind = JinjaToken::Kind;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsNamePart(char c) { return IsNameStart(c) || IsDigit(c); }

// \r\n and \r become \n; one newline at the end goes.
std::string Normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<JinjaToken>> Run() {
    while (at_ < source_.size()) {
      const size_t tag = FindTag();
      if (tag == std::string::npos) {
        AddText(source_.substr(at_), Place());
        at_ = source_.size();
        break;
      }
      RETURN_IF_ERROR(LexTag(tag));
    }
    Add(Kind::kEnd, "", Place());
    return std::move(tokens_);
  }

 private:
  JinjaPlace Place() {
    for (; counted_ < at_; ++counted_) {
      if (source_[counted_] == '\n') {
        ++place_.line;
        place_.column = 1;
      } else {
        ++place_.column;
      }
    }
    return place_;
  }

  Error Fail(std::string_view message) { return AtPlace(Place(), Code::kInvalidArgument, message); }

  void Add(Kind kind, std::string text, JinjaPlace place) {
    tokens_.push_back({kind, std::move(text), place});
  }

  void AddText(std::string text, JinjaPlace place) {
    if (!text.empty()) Add(Kind::kText, std::move(text), place);
  }

  bool Match(size_t at, std::string_view text) const {
    return std::string_view(source_).substr(at, text.size()) == text;
  }

  size_t FindTag() const {
    for (size_t i = source_.find('{', at_); i != std::string::npos; i = source_.find('{', i + 1)) {
      if (i + 1 < source_.size() &&
          std::string_view("{%#").find(source_[i + 1]) != std::string::npos)
        return i;
    }
    return std::string::npos;
  }

  size_t SkipSpace(size_t at) const {
    const std::string_view rest = std::string_view(source_).substr(at);
    return at + rest.size() - Strip(rest, StripSides::kLeft).size();
  }

  // The text before a tag, cut as the tag's marker says. strips_line: the tag is one before which
  // lstrip_blocks takes the white space of a line that holds nothing else.
  std::string TextBefore(size_t tag, char marker, bool strips_line) const {
    std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    if (marker == '-') return std::string(Strip(text, StripSides::kRight));
    if (marker == '+' || !strips_line) return std::string(text);
    const size_t line = text.rfind('\n') + 1;  // 0 when there is none.
    const bool starts_line = line > 0 || at_ == 0 || source_[at_ - 1] == '\n';
    if (starts_line && Strip(text.substr(line), StripSides::kLeft).empty()) {
      text = text.substr(0, line);
    }
    return std::string(text);
  }

  char MarkerAt(size_t at) const {
    const char c = at < source_.size() ? source_[at] : ' ';
    return c == '-' || c == '+' ? c : ' ';
  }

  // Moves behind the end of a block or comment tag that starts at `end` (at its marker, if any).
  void PassBlockEnd(size_t end, char marker) {
    at_ = end + (marker == ' ' ? 2 : 3);
    if (marker == '-') {
      at_ = SkipSpace(at_);
    } else if (marker == ' ' && at_ < source_.size() && source_[at_] == '\n') {
      ++at_;  // trim_blocks
    }
  }

  Result<void> LexTag(size_t tag) {
    const char type = source_[tag + 1];
    const char marker = MarkerAt(tag + 2);
    const JinjaPlace text_place = Place();
    AddText(TextBefore(tag, marker, type != '{'), text_place);
    at_ = tag;
    if (type == '#') return PassComment();
    if (type == '%') {
      const size_t raw = RawBodyAt(tag);
      if (raw != 0) return LexRaw(raw);
    }
    const bool block = type == '%';
    Add(block ? Kind::kBlockBegin : Kind::kVariableBegin, "", Place());
    at_ += marker == ' ' ? 2 : 3;
    return LexInside(block);
  }

  Result<void> PassComment() {
    const size_t end = source_.find("#}", at_ + 2);
    if (end == std::string::npos) return Fail("a comment without its #}");
    const char before = end > at_ + 2 ? source_[end - 1] : ' ';
    const char marker = before == '-' || before == '+' ? before : ' ';
    PassBlockEnd(marker == ' ' ? end : end - 1, marker);
    return {};
  }

  // Where the body starts if a {% raw %} tag lies at `tag`; else 0.
  size_t RawBodyAt(size_t tag) const {
    size_t at = SkipSpace(tag + (MarkerAt(tag + 2) == ' ' ? 2 : 3));
    if (!Match(at, "raw")) return 0;
    at = SkipSpace(at + 3);
    if (Match(at, "-%}")) return SkipSpace(at + 3);
    return Match(at, "%}") ? at + 2 : 0;
  }

  Result<void> LexRaw(size_t body) {
    const JinjaPlace place = Place();
    for (size_t end = source_.find("{%", body); end != std::string::npos;
         end = source_.find("{%", end + 2)) {
      const char marker = MarkerAt(end + 2);
      size_t at = SkipSpace(end + (marker == ' ' ? 2 : 3));
      if (!Match(at, "endraw")) continue;
      at = SkipSpace(at + 6);
      const char end_marker = MarkerAt(at);
      if (!Match(at + (end_marker == ' ' ? 0 : 1), "%}")) continue;
      at_ = body;
      AddText(TextBefore(end, marker, true), place);
      PassBlockEnd(at, end_marker);
      return {};
    }
    return Fail("{% raw %} without its {% endraw %}");
  }

  // Tokens up to and including the end of the tag.
  Result<void> LexInside(bool block) {
    const std::string_view close = block ? "%}" : "}}";
    std::string brackets;  // Those open: inside {...}, "}}" closes two dictionaries.
    while (true) {
      at_ = SkipSpace(at_);
      if (at_ >= source_.size()) return Fail(block ? "{% without its %}" : "{{ without its }}");
      const char marker =
          source_[at_] == '-' || (block && source_[at_] == '+') ? source_[at_] : ' ';
      if (brackets.empty() && Match(at_ + (marker == ' ' ? 0 : 1), close)) {
        Add(block ? Kind::kBlockEnd : Kind::kVariableEnd, "", Place());
        if (block) {
          PassBlockEnd(at_, marker);
        } else {
          at_ = marker == ' ' ? at_ + 2 : SkipSpace(at_ + 3);
        }
        return {};
      }
      RETURN_IF_ERROR(LexToken(brackets));
    }
  }

  Result<void> LexToken(std::string& brackets) {
    const JinjaPlace place = Place();
    const char c = source_[at_];
    if (IsNameStart(c)) {
      const size_t start = at_;
      while (at_ < source_.size() && IsNamePart(source_[at_])) ++at_;
      Add(Kind::kName, source_.substr(start, at_ - start), place);
      return {};
    }
    if (IsDigit(c)) return LexNumber(place);
    if (c == '\'' || c == '"') return LexString(place);
    return LexOperator(place, brackets);
  }

  void TakeDigits(std::string& digits) {
    while (at_ < source_.size() && (IsDigit(source_[at_]) || source_[at_] == '_')) {
      if (source_[at_] != '_') digits += source_[at_];
      ++at_;
    }
  }

  Result<void> LexNumber(JinjaPlace place) {
    std::string digits;
    Kind kind = Kind::kInteger;
    TakeDigits(digits);
    const auto digit_at = [&](size_t at) { return at < source_.size() && IsDigit(source_[at]); };
    if (Match(at_, ".") && digit_at(at_ + 1)) {
      kind = Kind::kFloat;
      digits += '.';
      ++at_;
      TakeDigits(digits);
    }
    if (Match(at_, "e") || Match(at_, "E")) {
      const bool sign = Match(at_ + 1, "+") || Match(at_ + 1, "-");
      if (digit_at(at_ + (sign ? 2 : 1))) {
        kind = Kind::kFloat;
        digits += source_.substr(at_, sign ? 2 : 1);
        at_ += sign ? 2 : 1;
        TakeDigits(digits);
      }
    }
    if (at_ < source_.size() && IsNameStart(source_[at_])) {
      return Fail("a number runs into a name (numbers here are decimal)");
    }
    Add(kind, std::move(digits), place);
    return {};
  }

  Result<void> LexString(JinjaPlace place) {
    const char quote = source_[at_];
    std::string value;
    size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != quote) {
      if (source_[i] != '\\') {
        value += source_[i++];
        continue;
      }
      ASSIGN_OR_RETURN(i, Unescape(i + 1, value));
    }
    if (i >= source_.size()) return Fail("a string without its closing quote");
    at_ = i + 1;
    Add(Kind::kString, std::move(value), place);
    return {};
  }

  // Appends what the escape at `i` (behind the backslash) means; the offset behind it.
  Result<size_t> Unescape(size_t i, std::string& value) {
    if (i >= source_.size()) return Fail("a string without its closing quote");
    const char c = source_[i];
    constexpr std::string_view kLetters = "abfnrtv\\'\"";
    constexpr std::string_view kMeant = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t letter = kLetters.find(c); letter != std::string_view::npos) {
      value += kMeant[letter];
      return i + 1;
    }
    if (c == '\n') return i + 1;
    if (c == 'x') return UnescapeNumber(i + 1, 2, 16, value);
    if (c == 'u') return UnescapeNumber(i + 1, 4, 16, value);
    if (c == 'U') return UnescapeNumber(i + 1, 8, 16, value);
    if (c >= '0' && c <= '7') {
      size_t digits = 1;
      while (digits < 3 && i + digits < source_.size() && source_[i + digits] >= '0' &&
             source_[i + digits] <= '7') {
        ++digits;
      }
      return UnescapeNumber(i, digits, 8, value);
    }
    if (c == 'N') return Fail("a \\N{...} escape, which is not supported");
    value += '\\';  // Python keeps the backslash of an escape it does not know.
    return i;
  }

  Result<size_t> UnescapeNumber(size_t i, size_t digits, uint32_t base, std::string& value) {
    uint32_t code_point = 0;
    for (size_t k = 0; k < digits; ++k) {
      const char c = i + k < source_.size() ? source_[i + k] : ' ';
      const uint32_t lower = static_cast<uint32_t>(c) | 0x20;
      uint32_t digit = 99;
      if (IsDigit(c)) digit = static_cast<uint32_t>(c - '0');
      if (lower >= 'a' && lower <= 'f') digit = lower - 'a' + 10;
      if (digit >= base) return Fail("a character escape with too few digits");
      code_point = code_point * base + digit;
      if (code_point > 0x10FFFF) return Fail("a character escape beyond U+10FFFF");
    }
    if (code_point >= 0xD800 && code_point <= 0xDFFF) {
      return Fail("a character escape of half a surrogate pair");
    }
    AppendUtf8(static_cast<char32_t>(code_point), value);
    return i + digits;
  }

  Result<void> LexOperator(JinjaPlace place, std::string& brackets) {
    constexpr std::array<std::string_view, 26> kOperators = {
        "//", "**", "==", "!=", "<=", ">=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  "<",  ">", "=", ".", ":", "|", ",", ";"};
    const auto found = std::find_if(kOperators.begin(), kOperators.end(),
                                    [&](std::string_view text) { return Match(at_, text); });
    if (found == kOperators.end()) return Fail("a character that starts no token");
    const char c = (*found)[0];
    constexpr std::string_view kOpen = "([{", kClose = ")]}";
    if (kOpen.find(c) != std::string_view::npos) brackets += c;
    if (const size_t close = kClose.find(c); close != std::string_view::npos) {
      if (brackets.empty() || brackets.back() != kOpen[close]) {
        return Fail(Format("a '{}' that closes nothing", c));
      }
      brackets.pop_back();
    }
    at_ += found->size();
    Add(Kind::kOperator, std::string(*found), place);
    return {};
  }

  const std::string source_;
  size_t at_ = 0;       // The next byte.
  size_t counted_ = 0;  // Bytes that place_ has passed.
  JinjaPlace place_;
  std::vector<JinjaToken> tokens_;
};

}  // namespace

Error AtPlace(JinjaPlace place, Code code, std::string_view message) {
  return {code, Format("chat template, line {}, column {}: {}", place.line, place.column, message)};
}

Result<std::vector<JinjaToken>> LexJinja(std::string_view source) {
  if (source.size() > kMaxJinjaSourceBytes) {
    return Error{Code::kOutOfRange, Format("chat template of {} bytes; at most {}", source.size(),
                                           kMaxJinjaSourceBytes)};
  }
  const size_t bad = FindBadUtf8(source);
  if (bad != std::string_view::npos) {
    return Error{Code::kInvalidArgument, Format("chat template: byte {} is not UTF-8", bad)};
  }
  return Lexer(Normalized(source)).Run();
}

}  // namespace divisi
