#include "divisi/cli/load_trace.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "divisi/cli/load_cursor.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

// Above what any model or trace has; keeps sums of a whole trace inside 64 bits.
constexpr int64_t kMaxTokens = 10'000'000;
constexpr int64_t kMaxHashId =
    (1ll << 59) - 1;                  // Streams above are used otherwise (load_source.cc).
constexpr double kMaxSeconds = 1e10;  // Some three centuries.
constexpr size_t kMaxLines = 10'000'000;
constexpr uint64_t kTailStreams = (1ull << 61) + (1ull << 60);  // Tokens that no hash id covers.

// One line of a trace, before scaling.
struct Row {
  double seconds = 0;
  int64_t input = 0;
  int64_t output = 0;
  std::vector<int64_t> hash_ids;
};

int64_t Scaled(int64_t tokens, double scale) {
  const double scaled = std::round(static_cast<double>(tokens) * scale);
  return std::clamp<int64_t>(static_cast<int64_t>(std::min(scaled, 1e15)), 1, kMaxTokens);
}

Result<void> ReadHashIds(TextCursor& cursor, std::vector<int64_t>& ids) {
  RETURN_IF_ERROR(cursor.Expect('['));
  if (cursor.Take(']')) return {};
  do {
    ASSIGN_OR_RETURN(const int64_t id, cursor.Integer(0, kMaxHashId));
    ids.push_back(id);
  } while (cursor.Take(','));
  return cursor.Expect(']');
}

Result<Row> ReadMooncakeLine(TextCursor& cursor) {
  Row row;
  bool has_time = false;
  const TextCursor start = cursor;
  RETURN_IF_ERROR(cursor.Expect('{'));
  if (!cursor.Take('}')) {
    do {
      ASSIGN_OR_RETURN(const std::string_view key, cursor.PlainString());
      RETURN_IF_ERROR(cursor.Expect(':'));
      if (key == "timestamp") {
        ASSIGN_OR_RETURN(const double ms, cursor.Number(0, kMaxSeconds * 1e3));
        row.seconds = ms / 1e3;
        has_time = true;
      } else if (key == "input_length") {
        ASSIGN_OR_RETURN(row.input, cursor.Integer(1, kMaxTokens));
      } else if (key == "output_length") {
        ASSIGN_OR_RETURN(row.output, cursor.Integer(0, kMaxTokens));
        row.output = std::max<int64_t>(row.output, 1);
      } else if (key == "hash_ids") {
        row.hash_ids.clear();
        RETURN_IF_ERROR(ReadHashIds(cursor, row.hash_ids));
      } else {
        RETURN_IF_ERROR(cursor.SkipJson());
      }
    } while (cursor.Take(','));
    RETURN_IF_ERROR(cursor.Expect('}'));
  }
  RETURN_IF_ERROR(cursor.ExpectEnd());
  if (!has_time || row.input == 0 || row.output == 0) {
    return start.Fail("expected the members timestamp, input_length and output_length");
  }
  const int64_t blocks = (row.input + kTraceBlockTokens - 1) / kTraceBlockTokens;
  if (static_cast<int64_t>(row.hash_ids.size()) > blocks) {
    return start.Fail(Format("{} hash_ids for {} blocks of {} tokens", row.hash_ids.size(), blocks,
                             kTraceBlockTokens));
  }
  return row;
}

// "2023-11-16 18:17:03.9799600" with an optional zone of +00:00, as seconds since 1970.
Result<double> ReadTimestamp(TextCursor& cursor) {
  const TextCursor start = cursor;
  ASSIGN_OR_RETURN(const int64_t year, cursor.Integer(1970, 2999));
  RETURN_IF_ERROR(cursor.Expect('-'));
  ASSIGN_OR_RETURN(const int64_t month, cursor.Integer(1, 12));
  RETURN_IF_ERROR(cursor.Expect('-'));
  ASSIGN_OR_RETURN(const int64_t day, cursor.Integer(1, 31));
  if (!cursor.Take(' ') && !cursor.Take('T')) return cursor.Fail("expected ' ' after the date");
  ASSIGN_OR_RETURN(const int64_t hour, cursor.Integer(0, 23));
  RETURN_IF_ERROR(cursor.Expect(':'));
  ASSIGN_OR_RETURN(const int64_t minute, cursor.Integer(0, 59));
  RETURN_IF_ERROR(cursor.Expect(':'));
  ASSIGN_OR_RETURN(const double second, cursor.Number(0, 60.999999999));
  cursor.TakeText("+00:00");
  const std::chrono::year_month_day date(std::chrono::year(static_cast<int>(year)),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day)));
  if (!date.ok()) return start.Fail("no such day");
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return static_cast<double>(days * 86400 + hour * 3600 + minute * 60) + second;
}

Result<Row> ReadAzureLine(TextCursor& cursor) {
  Row row;
  ASSIGN_OR_RETURN(row.seconds, ReadTimestamp(cursor));
  RETURN_IF_ERROR(cursor.Expect(','));
  ASSIGN_OR_RETURN(row.input, cursor.Integer(0, kMaxTokens));
  RETURN_IF_ERROR(cursor.Expect(','));
  ASSIGN_OR_RETURN(row.output, cursor.Integer(0, kMaxTokens));
  RETURN_IF_ERROR(cursor.ExpectEnd());
  row.input = std::max<int64_t>(row.input, 1);
  row.output = std::max<int64_t>(row.output, 1);
  return row;
}

PlannedRequest Plan(const Row& row, size_t index, const TraceOptions& options) {
  PlannedRequest request;
  request.arrival = Seconds(row.seconds);
  request.output_tokens = Scaled(row.output, options.scale);
  const int64_t block = Scaled(kTraceBlockTokens, options.scale);
  int64_t left = Scaled(row.input, options.scale);
  for (const int64_t id : row.hash_ids) {
    if (left == 0) break;
    const int64_t tokens = std::min(left, block);
    request.pieces.push_back({static_cast<uint64_t>(id), tokens});
    left -= tokens;
  }
  if (left > 0) request.pieces.push_back({kTailStreams + index, left});
  return request;
}

void SetTimes(std::vector<PlannedRequest>& requests, double speed) {
  const auto first = std::ranges::min_element(requests, {}, &PlannedRequest::arrival);
  const Seconds origin = first->arrival;
  for (PlannedRequest& request : requests) request.arrival = (request.arrival - origin) / speed;
}

}  // namespace

bool IsTraceBlock(const PromptPiece& piece) {
  return piece.stream <= static_cast<uint64_t>(kMaxHashId);
}

Result<std::vector<PlannedRequest>> ReadTrace(std::string_view text, std::string_view name,
                                              const TraceOptions& options) {
  if (!(options.speed > 0) || !std::isfinite(options.speed)) {
    return Error{Code::kInvalidArgument, "--trace-speed must be above 0"};
  }
  if (!(options.scale > 0) || !std::isfinite(options.scale)) {
    return Error{Code::kInvalidArgument, "--trace-scale must be above 0"};
  }
  std::vector<PlannedRequest> requests;
  const size_t size = text.size();
  std::optional<bool> is_json;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    TextCursor cursor(line, name, number);
    if (number > kMaxLines) return cursor.Fail(Format("more than {} lines", kMaxLines));
    if (!is_json) {
      is_json = cursor.Peek() == '{';
      if (!*is_json) {
        if (line == "TIMESTAMP,ContextTokens,GeneratedTokens") continue;
        return cursor.Fail(
            "neither a Mooncake trace (JSON lines) nor an Azure trace (header "
            "TIMESTAMP,ContextTokens,GeneratedTokens)");
      }
    }
    ASSIGN_OR_RETURN(const Row row, *is_json ? ReadMooncakeLine(cursor) : ReadAzureLine(cursor));
    requests.push_back(Plan(row, requests.size(), options));
    if (options.progress && number % 4096 == 0) {
      options.progress(1 - static_cast<double>(text.size()) / static_cast<double>(size));
    }
  }
  if (requests.empty()) {
    return Error{Code::kInvalidArgument, Format("{}: the trace has no requests", name)};
  }
  SetTimes(requests, options.speed);
  return requests;
}

}  // namespace divisi
