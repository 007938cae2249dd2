#include "divisi/cli/load_cursor.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "divisi/core/format.h"

namespace divisi {

Error TextCursor::Fail(std::string_view reason) const {
  return Error{Code::kInvalidArgument, Format("{}:{}:{}: {}", name_, number_, at_ + 1, reason)};
}

char TextCursor::Peek() {
  while (at_ < line_.size() && (line_[at_] == ' ' || line_[at_] == '\t')) ++at_;
  return at_ < line_.size() ? line_[at_] : '\0';
}

bool TextCursor::Take(char expected) {
  if (expected != ' ') Peek();  // A blank that is asked for is not skipped on the way to it.
  if (at_ >= line_.size() || line_[at_] != expected) return false;
  ++at_;
  return true;
}

bool TextCursor::TakeText(std::string_view expected) {
  if (!line_.substr(at_).starts_with(expected)) return false;
  at_ += expected.size();
  return true;
}

Result<void> TextCursor::Expect(char expected) {
  if (!Take(expected)) return Fail(Format("expected '{}'", expected));
  return {};
}

Result<void> TextCursor::ExpectEnd() {
  Peek();
  if (at_ < line_.size()) return Fail("unexpected text after the end of the entry");
  return {};
}

Result<int64_t> TextCursor::Integer(int64_t low, int64_t high) {
  Peek();
  int64_t value = 0;
  const char* const begin = line_.data() + at_;
  const auto [end, status] = std::from_chars(begin, line_.data() + line_.size(), value);
  if (status != std::errc() || value < low || value > high) {
    return Fail(Format("expected an integer from {} to {}", low, high));
  }
  at_ += static_cast<size_t>(end - begin);
  return value;
}

Result<double> TextCursor::Number(double low, double high) {
  Peek();
  double value = 0;
  const char* const begin = line_.data() + at_;
  const auto [end, status] = std::from_chars(begin, line_.data() + line_.size(), value);
  if (status != std::errc() || !std::isfinite(value) || value < low || value > high) {
    return Fail(Format("expected a number from {} to {}", low, high));
  }
  at_ += static_cast<size_t>(end - begin);
  return value;
}

Result<std::string_view> TextCursor::PlainString() {
  RETURN_IF_ERROR(Expect('"'));
  const size_t end = line_.find_first_of("\"\\", at_);
  if (end == std::string_view::npos || line_[end] == '\\') {
    return Fail("expected the name of a member, without escapes");
  }
  const std::string_view text = line_.substr(at_, end - at_);
  at_ = end + 1;
  return text;
}

Result<void> TextCursor::SkipString() {
  for (++at_; at_ < line_.size(); ++at_) {
    if (line_[at_] == '\\') {
      ++at_;
    } else if (line_[at_] == '"') {
      ++at_;
      return {};
    }
  }
  at_ = line_.size();
  return Fail("a string without its end");
}

Result<void> TextCursor::SkipJson() {
  int depth = 0;
  do {
    const char c = Peek();
    if (at_ >= line_.size()) return Fail("expected a value");
    if (c == '"') {
      RETURN_IF_ERROR(SkipString());
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return Fail(Format("nested more than {} deep", kMaxDepth));
      ++at_;
      continue;
    } else if (c == ']' || c == '}') {
      if (depth == 0) return Fail("expected a value");
      --depth;
      ++at_;
    } else if (depth > 0 && (c == ',' || c == ':')) {
      ++at_;
      continue;
    } else {
      const size_t end = line_.find_first_of(",:]}[{\" \t", at_);
      if (end == at_) return Fail("expected a value");
      at_ = std::min(end, line_.size());
    }
  } while (depth > 0);
  return {};
}

}  // namespace divisi
