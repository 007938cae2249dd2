// What a child process writes, cut into lines; in bounded memory, whatever it writes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi {

inline constexpr size_t kMostLineBytes = size_t{64} << 10;

class LineCutter {
 public:
  // The lines that end with these bytes, without their newlines. One beyond kMostLineBytes is given
  // as soon as it is, with a note that it was cut; the rest of it is dropped.
  std::vector<std::string> Take(std::string_view bytes);
  // The line that was left without an end, if any.
  std::optional<std::string> End();

 private:
  std::string partial_;
  bool dropping_ = false;  // Of a line that was cut, until it ends
};

}  // namespace divisi
