// The frames around batches of events (docs/kv.md, "Events").
//   live:    topic, number, batch
//   ask:     (the asker), empty, number
//   answer:  empty, number, batch        or, with vLLM from 0.26 on:  empty, topic, number, batch
//   its end: as an answer with number ff ff ff ff ff ff ff ff and an empty batch
// Numbers are 8 bytes, big-endian.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divisi {

inline constexpr uint64_t kEndSequence = ~uint64_t{0};

std::string SequenceFrame(uint64_t sequence);

struct NumberedPayload {
  uint64_t sequence = 0;
  std::string_view payload;  // Of the frames that it was read from.
};
// None: they are no such message.
std::optional<NumberedPayload> ReadLive(const std::vector<std::string>& frames);
std::optional<NumberedPayload> ReadAnswer(const std::vector<std::string>& frames);
std::optional<uint64_t> AskedSequence(const std::vector<std::string>& frames);

// The port of "tcp://HOST:PORT"; none: it is no such endpoint.
std::optional<int64_t> EndpointPort(std::string_view endpoint);

}  // namespace divisi
