// Text operations of a chat template: Python's str methods on UTF-8, counted in code points.
// Requires (all): valid UTF-8, which the template's source and the JSON variables were checked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi {

// Decodes the first code point of `text`. Requires: not empty.
char32_t FirstCodePoint(std::string_view text);

// The text of each code point.
std::vector<std::string_view> CodePoints(std::string_view text);

// Python's str.isspace of one code point: what strip() and split() remove.
bool IsSpace(char32_t code_point);

// Python's strip, lstrip and rstrip. `chars`: the code points to remove; white space if absent.
enum class StripSides { kBoth, kLeft, kRight };
std::string_view Strip(std::string_view text, StripSides sides,
                       std::optional<std::string_view> chars = std::nullopt);

// Python's split and rsplit by a separator that is not empty; `limit` splits at most, all if < 0.
std::vector<std::string_view> Split(std::string_view text, std::string_view separator,
                                    int64_t limit);
std::vector<std::string_view> SplitFromRight(std::string_view text, std::string_view separator,
                                             int64_t limit);
// Python's split() by runs of white space.
std::vector<std::string_view> SplitSpace(std::string_view text, int64_t limit);
// Python's splitlines() without the line ends.
std::vector<std::string_view> SplitLines(std::string_view text);

// Replaces the first `limit` occurrences, all if < 0.
std::string Replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t limit);

// Case mapping, one code point to one: the few that map to several (sharp s) keep theirs.
std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string Capitalized(std::string_view text);
// Python's str.title(): the first letter of each run of letters.
std::string Titled(std::string_view text);

}  // namespace divisi
