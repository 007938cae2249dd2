// Reads one line of text from left to right and says where it went wrong: each error is
// "NAME:LINE:COLUMN: reason". Blanks between JSON tokens are skipped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "divisi/core/result.h"

namespace divisi {

class TextCursor {
 public:
  // line, name: outlive this. number: from 1.
  TextCursor(std::string_view line, std::string_view name, size_t number)
      : line_(line), name_(name), number_(number) {}

  // kInvalidArgument at the current column.
  Error Fail(std::string_view reason) const;

  char Peek();               // The next character that is no blank; '\0' at the end.
  bool Take(char expected);  // True, and past it, where it comes next.
  bool TakeText(std::string_view expected);
  Result<void> Expect(char expected);
  Result<void> ExpectEnd();

  Result<int64_t> Integer(int64_t low, int64_t high);
  Result<double> Number(double low, double high);
  // A JSON string without escapes: its characters.
  Result<std::string_view> PlainString();
  // Any JSON value, up to kMaxDepth deep. Loose: it finds the value's end, and does not judge it.
  Result<void> SkipJson();

 private:
  static constexpr int kMaxDepth = 32;
  Result<void> SkipString();

  std::string_view line_;
  std::string_view name_;
  size_t number_;
  size_t at_ = 0;
};

}  // namespace divisi
