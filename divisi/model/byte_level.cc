#include "divisi/model/byte_level.h"

#include <array>

#include "divisi/core/utf8.h"

namespace divisi {
namespace {

constexpr int kAlphabetEnd = 0x100 + 68;  // One more than the last code point.

constexpr bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<int16_t, 256> CharacterOfByte() {
  std::array<int16_t, 256> table{};
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    table[byte] = static_cast<int16_t>(StandsForItself(byte) ? byte : next++);
  }
  return table;
}
constexpr std::array<int16_t, 256> kCharacterOfByte = CharacterOfByte();

constexpr std::array<int16_t, kAlphabetEnd> ByteOfCharacter() {
  std::array<int16_t, kAlphabetEnd> table{};
  table.fill(-1);
  for (int byte = 0; byte < 256; ++byte) table[kCharacterOfByte[byte]] = static_cast<int16_t>(byte);
  return table;
}
constexpr std::array<int16_t, kAlphabetEnd> kByteOfCharacter = ByteOfCharacter();

}  // namespace

std::string ToByteLevel(std::string_view bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char byte : bytes) {
    AppendUtf8(kCharacterOfByte[static_cast<unsigned char>(byte)], text);
  }
  return text;
}

std::optional<std::string> FromByteLevel(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = StepUtf8(text, i);
    if (step.kind != Utf8Step::Kind::kCharacter) return std::nullopt;
    const char32_t character = DecodeUtf8(text, i, step.length);
    if (character >= kAlphabetEnd || kByteOfCharacter[character] < 0) return std::nullopt;
    bytes += static_cast<char>(kByteOfCharacter[character]);
    i += step.length;
  }
  return bytes;
}

}  // namespace divisi
