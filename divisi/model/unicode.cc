#include "divisi/model/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "divisi/core/check.h"
#include "divisi/core/utf8.h"

namespace divisi {
namespace {

// Canonical decompositions have at most 4 code points (UAX 15, table 8); room for twice as many.
constexpr int kMaxDecomposition = 8;

constexpr int32_t kBeforeTrailingConsonants = 0x11A7;

struct Mark {
  int32_t code_point;
  int combining_class;
};

int CombiningClass(int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

// Appends `marks` in canonical order and empties it. utf8proc_decompose would order by exchanging
// neighbours, which is quadratic in the length of a run of marks, and the run is the client's.
void FlushMarks(std::vector<Mark>& marks, std::vector<int32_t>& out) {
  std::ranges::stable_sort(marks, {}, &Mark::combining_class);
  for (const Mark& mark : marks) out.push_back(mark.code_point);
  marks.clear();
}

std::vector<int32_t> ToNfd(std::string_view text) {
  std::vector<int32_t> out;
  out.reserve(text.size());
  std::vector<Mark> marks;
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = StepUtf8(text, i);
    CHECK(step.kind == Utf8Step::Kind::kCharacter, "not UTF-8 at {}", i);
    std::array<int32_t, kMaxDecomposition> parts;
    int boundary_class = 0;
    const auto count = utf8proc_decompose_char(
        static_cast<int32_t>(DecodeUtf8(text, i, step.length)), parts.data(), parts.size(),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary_class);
    CHECK(count >= 0 && count <= kMaxDecomposition, "utf8proc_decompose_char: {}", count);
    for (int k = 0; k < count; ++k) {
      const int combining_class = CombiningClass(parts[k]);
      if (combining_class == 0) {
        FlushMarks(marks, out);
        out.push_back(parts[k]);
      } else {
        marks.push_back({parts[k], combining_class});
      }
    }
    i += step.length;
  }
  FlushMarks(marks, out);
  return out;
}

// Composes `code_points` in place and appends their UTF-8 to `out`.
// Requires: canonical decomposition and order.
void AppendComposed(std::span<int32_t> code_points, std::string& out) {
  const auto length = utf8proc_normalize_utf32(
      code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()),
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  CHECK(length >= 0, "utf8proc_normalize_utf32: {}", length);
  for (const int32_t code_point : code_points.first(length)) {
    AppendUtf8(static_cast<char32_t>(code_point), out);
  }
}

}  // namespace

bool IsWhiteSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

char32_t UpperCase(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<int32_t>(c)));
}

char32_t LowerCase(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(c)));
}

bool IsCased(char32_t c) {
  const auto category = utf8proc_category(static_cast<int32_t>(c));
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT;
}

bool IsPrintable(char32_t c) {
  switch (utf8proc_category(static_cast<int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return c == ' ';
    default: return true;
  }
}

bool IsPlainNfc(std::string_view text) {
  // 0xCC is the first byte of U+0300; every later character begins with it or a greater byte.
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0xCC; });
}

std::string ToNfc(std::string_view text) {
  std::vector<int32_t> code_points = ToNfd(text);
  std::string normalised;
  normalised.reserve(text.size());
  // utf8proc takes U+11A7 for the first trailing consonant and composes it away (U+11A8 is the
  // first). It is a starter that composes with nothing, so the runs around it are independent.
  for (auto begin = code_points.begin(); begin != code_points.end();) {
    const auto end = std::find(begin, code_points.end(), kBeforeTrailingConsonants);
    AppendComposed({begin, end}, normalised);
    begin = end;
    for (; begin != code_points.end() && *begin == kBeforeTrailingConsonants; ++begin) {
      AppendUtf8(kBeforeTrailingConsonants, normalised);
    }
  }
  return normalised;
}

}  // namespace divisi
