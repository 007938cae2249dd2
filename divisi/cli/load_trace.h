// Recorded loads: the Mooncake and Azure trace formats as lists of requests to replay.
//   Mooncake  JSON lines {"timestamp": ms, "input_length": n, "output_length": n,
//             "hash_ids": [...]}, one id per 512 prompt tokens; equal ids are equal tokens after an
//             equal beginning. Source: Qin et al., "Mooncake", FAST 2025, and its trace release.
//   Azure     CSV with header TIMESTAMP,ContextTokens,GeneratedTokens. Source: Patel et al.,
//             "Splitwise", ISCA 2024, and the AzurePublicDataset release.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "divisi/cli/load_source.h"
#include "divisi/core/result.h"

namespace divisi {

// Prompt tokens that one Mooncake hash id stands for.
inline constexpr int64_t kTraceBlockTokens = 512;

// Whether a piece of a prompt is what a hash id stands for; its stream is then the id.
bool IsTraceBlock(const PromptPiece& piece);

struct TraceOptions {
  double speed = 1;  // Times are divided by it.
  // Lengths and the tokens per hash id are multiplied by it (each at least 1), so that a trace of
  // long prompts fits a small model with the same sharing.
  double scale = 1;
  // Called now and then with the fraction that is read.
  std::function<void(double)> progress;
};

// Reads either format, told apart by the first character. Arrivals count from the first request.
// The text may be hostile: it can make this fail, not misbehave.
// Errors: kInvalidArgument "NAME:LINE:COLUMN: what is wrong there"; also for a text without
// requests.
Result<std::vector<PlannedRequest>> ReadTrace(std::string_view text, std::string_view name,
                                              const TraceOptions& options);

}  // namespace divisi
