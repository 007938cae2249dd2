// What `divisi bench serve` shows: a table for people, and JSON with the field names of
// `vllm bench serve` (docs/bench.md lists them).
#pragma once

#include <string>
#include <vector>

#include "divisi/cli/load_run.h"
#include "divisi/cli/load_stats.h"
#include "divisi/core/json.h"

namespace divisi {

// What was asked for, repeated in the report.
struct ReportHeader {
  std::string date;  // "20260131-235959"
  std::string model;
  bool chat = false;
  int64_t prompts = 0;
  double requests_per_second = 0;  // 0: all at once, written "inf".
  double burstiness = 1;
  int64_t max_concurrency = 0;  // 0: no limit, written null.
  Objectives objectives;
  std::vector<std::string> metrics;  // Of ttft, tpot, itl, e2el: those whose figures are shown.
};

// Errors: kInvalidArgument for a name other than ttft, tpot, itl, e2el.
Result<std::vector<std::string>> ParseMetrics(std::string_view list);

// "20260131-235959", UTC. Requires: a time of the years 1970 to 9999.
std::string DateName(double unix_seconds);

// detailed: with the arrays of one entry per request.
Json ReportJson(const ReportHeader& header, const LoadFigures& figures, const LoadResult& result,
                bool detailed);
std::string ReportTable(const ReportHeader& header, const LoadFigures& figures,
                        const LoadResult& result);

}  // namespace divisi
