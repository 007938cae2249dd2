// The byte-level alphabet: each byte is written as one printable character, so that a vocabulary of
// byte strings can be a JSON object. Bytes that are printable Latin-1 stand for themselves, the
// other 68 are U+0100 and up ("Ġ" is the space, "Ċ" the line feed).
// Source: bytes_to_unicode of GPT-2, Radford et al. 2019.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace divisi {

// `bytes` written in the alphabet.
std::string ToByteLevel(std::string_view bytes);

// The bytes that `text` stands for; nothing when a character is outside the alphabet.
std::optional<std::string> FromByteLevel(std::string_view text);

}  // namespace divisi
