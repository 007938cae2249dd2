// The process's log: one line per event on standard error, as text or as one JSON object a line.
// A Logger is passed to whoever logs; there is no global one.
#pragma once

#include <mutex>
#include <string_view>

#include "divisi/core/json.h"

namespace divisi {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

class Logger {
 public:
  struct Options {
    bool json = false;
    LogLevel least = LogLevel::kInfo;
  };
  explicit Logger(Options options) : options_(options) {}

  // Writes one line: time, level, event, then the fields in order. Safe from any thread.
  //   logger.Log(LogLevel::kInfo, "request finished", {{"id", id}, {"ttft_seconds", ttft}});
  void Log(LogLevel level, std::string_view event, Json::Object fields = {});

 private:
  const Options options_;
  std::mutex write_mutex_;  // Keeps lines whole.
};

}  // namespace divisi
