#include "divisi/cli/line_cutter.h"

#include <utility>

#include "divisi/core/format.h"

namespace divisi {

std::vector<std::string> LineCutter::Take(std::string_view bytes) {
  std::vector<std::string> lines;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const bool ends = end != std::string_view::npos;
    const std::string_view piece = bytes.substr(0, end);
    bytes.remove_prefix(ends ? end + 1 : bytes.size());
    if (!dropping_) {
      const size_t room = kMostLineBytes - partial_.size();
      partial_.append(piece.substr(0, room));
      if (piece.size() > room) {
        lines.push_back(std::exchange(partial_, {}) +
                        Format(" [cut: longer than {} bytes]", kMostLineBytes));
        dropping_ = true;
      } else if (ends) {
        lines.push_back(std::exchange(partial_, {}));
      }
    }
    if (ends) dropping_ = false;
  }
  return lines;
}

std::optional<std::string> LineCutter::End() {
  dropping_ = false;
  if (partial_.empty()) return std::nullopt;
  return std::exchange(partial_, {});
}

}  // namespace divisi
