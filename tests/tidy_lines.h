// Reading of sources that the tidy rules share.
#pragma once

#include <string_view>
#include <vector>

namespace divisi {

std::vector<std::string_view> Lines(std::string_view text);
std::string_view Trimmed(std::string_view text);
bool IsCpp(std::string_view path);
// Tests, fuzzers and benchmarks: they may use every library and the wall clock.
bool IsTestCode(std::string_view path);
// Whether `word` stands in the line, not as a part of a longer name.
bool HasWord(std::string_view line, std::string_view word);

}  // namespace divisi
