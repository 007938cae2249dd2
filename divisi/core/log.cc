#include "divisi/core/log.h"

#include <cmath>
#include <cstdio>
#include <ctime>

#include "divisi/core/clock.h"

namespace divisi {
namespace {

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "?";
}

// RFC 3339 in UTC with milliseconds.
std::string Timestamp(double unix_seconds) {
  const double whole = std::floor(unix_seconds);
  const std::time_t seconds = static_cast<std::time_t>(whole);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
  return Format("{}.{:03}Z", date, static_cast<int>((unix_seconds - whole) * 1000));
}

std::string TextLine(const std::string& time, LogLevel level, std::string_view event,
                     const Json::Object& fields) {
  std::string line = Format("{} {:<7} {}", time, LevelName(level), event);
  for (const auto& [key, value] : fields) {
    const bool bare = value.is_string() && !value.as_string().empty() &&
                      value.as_string().find_first_of(" \"=\n\r\t") == std::string::npos;
    // People read text: six digits of a duration are enough for them. JSON keeps them all.
    const bool rounded = value.is_number() && !value.is_int();
    line += Format(" {}={}", key,
                   bare      ? value.as_string()
                   : rounded ? Format("{:.6g}", value.as_double())
                             : value.Dump());
  }
  return line;
}

std::string JsonLine(const std::string& time, LogLevel level, std::string_view event,
                     Json::Object fields) {
  Json::Object line = {{"time", time}, {"level", LevelName(level)}, {"event", event}};
  for (auto& field : fields) line.push_back(std::move(field));
  return Json(std::move(line)).Dump();
}

}  // namespace

void Logger::Log(LogLevel level, std::string_view event, Json::Object fields) {
  if (level < options_.least) return;
  const std::string time = Timestamp(UnixSeconds());
  std::string line = options_.json ? JsonLine(time, level, event, std::move(fields))
                                   : TextLine(time, level, event, fields);
  line += '\n';
  const std::lock_guard lock(write_mutex_);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace divisi
