// What the tokenizer asks of the Unicode character database. The one place that includes utf8proc.
#pragma once

#include <string>
#include <string_view>

namespace divisi {

// The White_Space property.
bool IsWhiteSpace(char32_t code_point);

// True when `text` is in normalization form C for a cheap reason: no character is U+0300 or above.
bool IsPlainNfc(std::string_view text);

// Normalization form C in O(n log n), also for text made of combining marks alone.
// Requires: `text` is UTF-8.
// Source: Unicode Standard Annex 15.
std::string ToNfc(std::string_view text);

}  // namespace divisi
