#include "divisi/kv/event_socket_frames.h"

#include <charconv>

namespace divisi {
namespace {

std::optional<uint64_t> ReadSequence(std::string_view frame) {
  if (frame.size() != 8) return std::nullopt;
  uint64_t sequence = 0;
  for (const char byte : frame) sequence = sequence << 8 | static_cast<uint8_t>(byte);
  return sequence;
}

}  // namespace

std::string SequenceFrame(uint64_t sequence) {
  std::string frame;
  for (int shift = 56; shift >= 0; shift -= 8) frame += static_cast<char>(sequence >> shift & 0xff);
  return frame;
}

std::optional<NumberedPayload> ReadLive(const std::vector<std::string>& frames) {
  if (frames.size() != 3) return std::nullopt;
  const auto sequence = ReadSequence(frames[1]);
  if (!sequence || *sequence == kEndSequence) return std::nullopt;
  return NumberedPayload{*sequence, frames[2]};
}

std::optional<NumberedPayload> ReadAnswer(const std::vector<std::string>& frames) {
  if ((frames.size() != 3 && frames.size() != 4) || !frames[0].empty()) return std::nullopt;
  const auto sequence = ReadSequence(frames[frames.size() - 2]);
  if (!sequence) return std::nullopt;
  return NumberedPayload{*sequence, frames.back()};
}

std::optional<uint64_t> AskedSequence(const std::vector<std::string>& frames) {
  if (frames.size() != 3 || !frames[1].empty()) return std::nullopt;
  return ReadSequence(frames[2]);
}

std::optional<int64_t> EndpointPort(std::string_view endpoint) {
  const size_t colon = endpoint.rfind(':');
  if (!endpoint.starts_with("tcp://") || colon < 6) return std::nullopt;
  const std::string_view text = endpoint.substr(colon + 1);
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return port;
}

}  // namespace divisi
