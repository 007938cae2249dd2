// The catalogue files of data/, compiled in: CMake writes the source from them.
#pragma once

#include <span>
#include <string_view>

namespace divisi {

struct BuiltInFile {
  std::string_view name;
  std::string_view text;
};
std::span<const BuiltInFile> BuiltInFiles();

}  // namespace divisi
