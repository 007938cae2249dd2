// UTF-8 as bytes: what is well formed, and where a broken sequence ends.
#pragma once

#include <cstddef>
#include <cstdint>
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

// Offset of the first byte that no well-formed sequence holds; npos where there is none.
size_t FindBadUtf8(std::string_view text);
inline bool IsUtf8(std::string_view text) { return FindBadUtf8(text) == std::string_view::npos; }

// Whether the byte goes on with a sequence that an earlier one began.
constexpr bool IsUtf8Continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

// Bytes of the sequence that `lead` begins. Requires: the first byte of a well-formed sequence.
constexpr int Utf8Length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  if (byte < 0x80) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
}

// How many characters begin in `text`: its code points, where it is UTF-8.
int64_t CountCodePoints(std::string_view text);

// U+FFFD, which stands for what is broken.
inline constexpr std::string_view kUtf8Replacement = "\xEF\xBF\xBD";

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
