#include "divisi/cli/load_sse.h"

#include "divisi/core/format.h"

namespace divisi {

Result<void> SseParser::Feed(std::string_view bytes,
                             const std::function<void(std::string_view)>& on_data) {
  while (!bytes.empty()) {
    if (after_cr_) {
      after_cr_ = false;
      if (bytes.front() == '\n') {
        bytes.remove_prefix(1);
        continue;
      }
    }
    const size_t end = bytes.find_first_of("\r\n");
    const std::string_view part = bytes.substr(0, end);
    if (line_.size() + data_.size() + part.size() > kMaxEventBytes) {
      return Error{Code::kOutOfRange,
                   Format("the server sent an event of more than {} bytes", kMaxEventBytes)};
    }
    if (end == std::string_view::npos) {
      line_ += part;
      break;
    }
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    if (line_.empty()) {
      EndLine(part, on_data);  // The usual case: the whole line came in one piece.
    } else {
      line_ += part;
      EndLine(line_, on_data);
      line_.clear();
    }
  }
  return {};
}

void SseParser::EndLine(std::string_view line,
                        const std::function<void(std::string_view)>& on_data) {
  if (line.empty()) {
    if (has_data_) on_data(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  const size_t colon = line.find(':');
  if (line.substr(0, colon) != "data") return;  // A comment (empty name) or a field of no use here.
  std::string_view value = colon == std::string_view::npos ? "" : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += value;
  has_data_ = true;
}

}  // namespace divisi
