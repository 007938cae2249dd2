// Server-sent events, read as they arrive: bytes in whatever pieces the network makes, events out.
// Source: WHATWG HTML, section 9.2.6 "Interpreting an event stream" (lines end with LF, CR or CRLF;
// an empty line ends an event; several data lines are joined by LF).
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "divisi/core/result.h"

namespace divisi {

class SseParser {
 public:
  // The events of a completion are a few hundred bytes; one with logprobs of 20 candidates some
  // kilobytes. A server that sends more than this without ending the event is broken.
  static constexpr size_t kMaxEventBytes = 4 << 20;

  // Calls on_data with each complete event's data, in order; the view lives during the call. Only
  // the data field is kept: event, id and retry play no part in completions. Errors: kOutOfRange
  // for an event beyond kMaxEventBytes; the parser is then of no more use.
  Result<void> Feed(std::string_view bytes, const std::function<void(std::string_view)>& on_data);

 private:
  void EndLine(std::string_view line, const std::function<void(std::string_view)>& on_data);

  std::string line_;       // The line that has not ended.
  std::string data_;       // Data lines of the event that has not ended.
  bool has_data_ = false;  // An event may hold one empty data line.
  bool after_cr_ = false;  // An LF that comes next belongs to the line that ended.
};

}  // namespace divisi
