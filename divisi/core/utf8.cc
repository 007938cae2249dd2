#include "divisi/core/utf8.h"

#include <algorithm>

#include "divisi/core/check.h"

namespace divisi {
namespace {

struct LeadByte {
  int length = 0;            // Of the sequence that it begins; 0 for a byte that begins none.
  unsigned char low = 0x80;  // Bounds of the second byte.
  unsigned char high = 0xBF;
};

LeadByte Classify(unsigned char lead) {
  if (lead < 0x80) return {.length = 1};
  if (lead < 0xC2) return {};
  if (lead < 0xE0) return {.length = 2};
  if (lead == 0xE0) return {.length = 3, .low = 0xA0};
  if (lead == 0xED) return {.length = 3, .high = 0x9F};
  if (lead < 0xF0) return {.length = 3};
  if (lead == 0xF0) return {.length = 4, .low = 0x90};
  if (lead < 0xF4) return {.length = 4};
  if (lead == 0xF4) return {.length = 4, .high = 0x8F};
  return {};
}

// Appends text[0, end) to `out`, repaired. Requires: `end` is a boundary of steps.
void AppendRepaired(std::string_view text, size_t end, std::string& out) {
  size_t copied = 0;
  for (size_t i = 0; i < end;) {
    const Utf8Step step = StepUtf8(text, i);
    if (step.kind != Utf8Step::Kind::kCharacter) {
      out.append(text.substr(copied, i - copied));
      out.append(kUtf8Replacement);
      copied = i + step.length;
    }
    i += step.length;
  }
  out.append(text.substr(copied, end - copied));
}

}  // namespace

Utf8Step StepUtf8(std::string_view text, size_t position) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[position + i]); };
  const LeadByte lead = Classify(byte(0));
  if (lead.length == 0) return {Utf8Step::Kind::kBroken, 1};
  const size_t available = text.size() - position;
  for (int i = 1; i < lead.length; ++i) {
    if (static_cast<size_t>(i) == available) return {Utf8Step::Kind::kUnfinished, i};
    const bool follows = i == 1 ? byte(1) >= lead.low && byte(1) <= lead.high
                                : IsUtf8Continuation(text[position + i]);
    if (!follows) return {Utf8Step::Kind::kBroken, i};
  }
  return {Utf8Step::Kind::kCharacter, lead.length};
}

size_t FindBadUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = StepUtf8(text, i);
    if (step.kind != Utf8Step::Kind::kCharacter) return i;
    i += static_cast<size_t>(step.length);
  }
  return std::string_view::npos;
}

int64_t CountCodePoints(std::string_view text) {
  return std::ranges::count_if(text, [](char byte) { return !IsUtf8Continuation(byte); });
}

std::string RepairUtf8(std::string_view text) {
  std::string repaired;
  repaired.reserve(text.size());
  AppendRepaired(text, text.size(), repaired);
  return repaired;
}

std::string TakeFinishedUtf8(std::string& pending) {
  // An unfinished sequence has at most 3 bytes, so it begins among the last 3; a step that ends
  // the text unfinished from there is the same step that a walk from the front would take, because
  // its first byte is a lead byte and no step goes over a lead byte.
  size_t end = pending.size();
  for (size_t back = 1; back <= 3 && back <= pending.size(); ++back) {
    const size_t start = pending.size() - back;
    if (StepUtf8(pending, start).kind == Utf8Step::Kind::kUnfinished) end = start;
  }
  std::string finished;
  AppendRepaired(pending, end, finished);
  pending.erase(0, end);
  return finished;
}

char32_t DecodeUtf8(std::string_view text, size_t position, int length) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[position + i]); };
  if (length == 1) return byte(0);
  char32_t code_point = byte(0) & (0x7F >> length);
  for (int i = 1; i < length; ++i) code_point = code_point << 6 | (byte(i) & 0x3F);
  return code_point;
}

void AppendUtf8(char32_t code_point, std::string& text) {
  CHECK(code_point < 0x110000 && (code_point < 0xD800 || code_point > 0xDFFF),
        "U+{:X} is no scalar value", static_cast<uint32_t>(code_point));
  const auto tail = [&](int shift) {
    text += static_cast<char>(0x80 | (code_point >> shift & 0x3F));
  };
  if (code_point < 0x80) {
    text += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    text += static_cast<char>(0xC0 | code_point >> 6);
    tail(0);
  } else if (code_point < 0x10000) {
    text += static_cast<char>(0xE0 | code_point >> 12);
    tail(6), tail(0);
  } else {
    text += static_cast<char>(0xF0 | code_point >> 18);
    tail(12), tail(6), tail(0);
  }
}

}  // namespace divisi
