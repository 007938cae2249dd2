#include "divisi/model/jinja_text.h"

#include <algorithm>

#include "divisi/core/check.h"
#include "divisi/core/utf8.h"
#include "divisi/model/unicode.h"

namespace divisi {
namespace {

size_t BytesAt(std::string_view text, size_t i) { return static_cast<size_t>(Utf8Length(text[i])); }

// How often a limit lets something be done. A negative one is none, and as an unsigned number it is
// beyond what any text has room for; a template may write any integer, which -- must not pass.
uint64_t Times(int64_t limit) { return static_cast<uint64_t>(limit); }

size_t FirstBytes(std::string_view text) { return BytesAt(text, 0); }

size_t LastBytes(std::string_view text) {
  size_t start = text.size() - 1;
  while (start > 0 && IsUtf8Continuation(text[start])) --start;
  return text.size() - start;
}

template <typename Map>
std::string MapCodePoints(std::string_view text, const Map& map) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    AppendUtf8(map(FirstCodePoint(text)), out);
    text.remove_prefix(FirstBytes(text));
  }
  return out;
}

// Whether `text` starts with a line end, and its bytes.
size_t LineEndBytes(std::string_view text) {
  if (text.substr(0, 2) == "\r\n") return 2;
  const char32_t c = FirstCodePoint(text);
  const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                    c == 0x2028 || c == 0x2029;
  return ends ? FirstBytes(text) : 0;
}

}  // namespace

char32_t FirstCodePoint(std::string_view text) {
  return DecodeUtf8(text, 0, static_cast<int>(FirstBytes(text)));
}

std::vector<std::string_view> CodePoints(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t i = 0; i < text.size();) {
    const size_t length = BytesAt(text, i);
    parts.push_back(text.substr(i, length));
    i += length;
  }
  return parts;
}

bool IsSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

std::string_view Strip(std::string_view text, StripSides sides,
                       std::optional<std::string_view> chars) {
  const auto removable = [&](std::string_view c) {
    return chars ? chars->find(c) != std::string_view::npos : IsSpace(FirstCodePoint(c));
  };
  while (sides != StripSides::kRight && !text.empty() &&
         removable(text.substr(0, FirstBytes(text)))) {
    text.remove_prefix(FirstBytes(text));
  }
  while (sides != StripSides::kLeft && !text.empty() &&
         removable(text.substr(text.size() - LastBytes(text)))) {
    text.remove_suffix(LastBytes(text));
  }
  return text;
}

std::vector<std::string_view> Split(std::string_view text, std::string_view separator,
                                    int64_t limit) {
  CHECK(!separator.empty());
  std::vector<std::string_view> parts;
  for (uint64_t left = Times(limit); left != 0; --left) {
    const size_t at = text.find(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> SplitFromRight(std::string_view text, std::string_view separator,
                                             int64_t limit) {
  CHECK(!separator.empty());
  std::vector<std::string_view> parts;
  for (uint64_t left = Times(limit); left != 0; --left) {
    const size_t at = text.rfind(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> SplitSpace(std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts;
  text = Strip(text, StripSides::kLeft);
  for (uint64_t left = Times(limit); !text.empty() && left != 0; --left) {
    size_t end = 0;
    while (end < text.size() && !IsSpace(FirstCodePoint(text.substr(end)))) {
      end += FirstBytes(text.substr(end));
    }
    parts.push_back(text.substr(0, end));
    text = Strip(text.substr(end), StripSides::kLeft);
  }
  if (!text.empty()) parts.push_back(text);
  return parts;
}

std::vector<std::string_view> SplitLines(std::string_view text) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t end_bytes = LineEndBytes(text.substr(i));
    if (end_bytes == 0) {
      i += FirstBytes(text.substr(i));
      continue;
    }
    lines.push_back(text.substr(start, i - start));
    i += end_bytes;
    start = i;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::string Replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t limit) {
  std::string out;
  // Python puts `to` before each character and at the end when there is nothing to look for.
  for (uint64_t left = Times(limit); left != 0; --left) {
    const size_t at = from.empty() ? 0 : text.find(from);
    if (at == std::string_view::npos) break;
    out.append(text.substr(0, at));
    out.append(to);
    if (from.empty()) {
      if (text.empty()) break;
      out.append(text.substr(0, FirstBytes(text)));
      text.remove_prefix(FirstBytes(text));
    } else {
      text.remove_prefix(at + from.size());
    }
  }
  out.append(text);
  return out;
}

std::string ToUpper(std::string_view text) { return MapCodePoints(text, UpperCase); }

std::string ToLower(std::string_view text) { return MapCodePoints(text, LowerCase); }

std::string Capitalized(std::string_view text) {
  if (text.empty()) return {};
  const size_t first = FirstBytes(text);
  return ToUpper(text.substr(0, first)) + ToLower(text.substr(first));
}

std::string Titled(std::string_view text) {
  bool inside = false;
  return MapCodePoints(text, [&](char32_t c) {
    const char32_t mapped = inside ? LowerCase(c) : UpperCase(c);
    inside = IsCased(c);
    return mapped;
  });
}

}  // namespace divisi
