// Reads one streamed completion as it arrives and fills in the client's record of it: text, token
// events with their times, and the server's own count of tokens.
#pragma once

#include <optional>
#include <string_view>

#include "divisi/cli/load_sse.h"
#include "divisi/cli/load_stats.h"
#include "divisi/core/result.h"

namespace divisi {

class CompletionStream {
 public:
  // record outlives this. sent: when the request was sent, on the clock of Feed's `now`.
  CompletionStream(RequestRecord& record, Seconds sent) : record_(record), sent_(sent) {}

  // Bytes of the response body that arrived at `now`.
  // Errors: kInvalidArgument for an event that is no completion chunk; kInternal with the server's
  // message when it reports an error midway; SseParser's.
  Result<void> Feed(std::string_view bytes, Seconds now);

  // The response has ended. Errors: kDataLoss when it ended before its [DONE].
  Result<void> End();

  // Chunks that brought a token. One may bring several: output_tokens comes from usage where the
  // server sends it.
  int64_t token_events() const { return events_; }

 private:
  Result<void> ReadChunk(std::string_view data, Seconds now);

  RequestRecord& record_;
  const Seconds sent_;
  SseParser parser_;
  Seconds last_token_;
  int64_t events_ = 0;
  std::optional<int64_t> usage_output_;
  bool done_ = false;
};

}  // namespace divisi
