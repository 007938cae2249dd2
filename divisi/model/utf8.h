// UTF-8 as bytes: what is well formed, and where a broken sequence ends.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace divisi {

// One step over bytes that claim to be UTF-8.
struct Utf8Step {
  enum class Kind {
    kCharacter,   // A well-formed sequence of `length` bytes.
    kBroken,      // A maximal subpart of an ill-formed sequence: `length` bytes, 1 to 3.
    kUnfinished,  // The text ends inside a sequence that was well formed so far.
  };
  Kind kind = Kind::kCharacter;
  int length = 0;
};

// Requires: position < text.size().
// Source: the Unicode Standard 15, table 3-7 (well-formed sequences) and section 3.9, "U+FFFD
// Substitution of Maximal Subparts".
Utf8Step StepUtf8(std::string_view text, size_t position);

bool IsUtf8(std::string_view text);

// `text` with each maximal subpart of an ill-formed sequence replaced by U+FFFD; an unfinished
// sequence at the end counts as one.
std::string RepairUtf8(std::string_view text);

// Takes all but an unfinished sequence at the end out of `pending`, repaired. What stays in
// `pending` is at most 3 bytes.
std::string TakeFinishedUtf8(std::string& pending);

// Code point of the well-formed sequence at `position`, `length` bytes long.
char32_t DecodeUtf8(std::string_view text, size_t position, int length);

// Appends the UTF-8 sequence of `code_point`. Requires: a Unicode scalar value.
void AppendUtf8(char32_t code_point, std::string& text);

}  // namespace divisi
