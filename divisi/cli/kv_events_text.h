// Cache events as `divisi kv-events` shows them.
#pragma once

#include <string>

#include "divisi/core/json.h"
#include "divisi/kv/event_stream.h"
#include "divisi/kv/held_blocks.h"

namespace divisi {

// A line for each event: batch, what, how many blocks of how many tokens, medium, first hash and
// parent; and one where everything was forgotten.
std::string KvEventsText(const EventUpdate& update);
// {"forget", "sequence", "time_seconds", "data_parallel_rank", "events"}: see EventBatchJson.
Json KvEventsJson(const EventUpdate& update);

// What changed about the stream, a line each; empty: nothing.
std::string StreamNews(const EventStreamStats& before, const EventStreamStats& now);
// "12 batches; 30 blocks held: 20 device, 15 host".
std::string HeldText(const EventStreamStats& stats, const HeldBlocks& held);

}  // namespace divisi
