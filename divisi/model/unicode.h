// What the tokenizer and chat templates ask of the Unicode character database. unicode.cc is the
// one place that includes utf8proc.
#pragma once

#include <string>
#include <string_view>

namespace divisi {

// The White_Space property.
bool IsWhiteSpace(char32_t code_point);

// Simple case mappings: one code point to one. The few that map to several (sharp s) keep theirs.
char32_t UpperCase(char32_t code_point);
char32_t LowerCase(char32_t code_point);
// A letter that has case: general category Lu, Ll or Lt.
bool IsCased(char32_t code_point);
// Python's str.isprintable: false for control, format, surrogate, private and unassigned code
// points and for separators other than the space.
bool IsPrintable(char32_t code_point);

// True when `text` is in normalization form C for a cheap reason: no character is U+0300 or above.
bool IsPlainNfc(std::string_view text);

// Normalization form C in O(n log n), also for text made of combining marks alone.
// Requires: `text` is UTF-8.
// Source: Unicode Standard Annex 15.
std::string ToNfc(std::string_view text);

}  // namespace divisi
