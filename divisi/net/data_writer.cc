#include "divisi/net/data_writer.h"

#include <utility>

namespace divisi {

DataWriter::DataWriter(const TransportOptions& options, const RegionDescriptor& region,
                       const PeerMemory& own, Seconds now)
    : self_(options.self),
      region_(region),
      greeted_by_(now + options.connect),
      silence_(options.silence),
      news_(now) {
  sends_.push_back({.header = EncodeData(HelloMessage{self_, region.owner, region.key, own})});
}

Result<void> DataWriter::Write(const RemoteWrite& write, Seconds now) {
  const Bytes size = write.size();
  if (!InRegion(region_.size, write.offset, size)) {
    return Error{Code::kOutOfRange, Format("a write of {} bytes at {} into a region of {} bytes",
                                           size.value, write.offset.value, region_.size.value)};
  }
  const auto pending = static_cast<int64_t>(waiting_.size() + flights_.size());
  if (pending >= kMaxPendingWrites) {
    return Error{Code::kResourceExhausted,
                 Format("{} writes to that peer have not ended; wait for some", pending)};
  }
  waiting_.push_back(write);
  Fill(now);
  return {};
}

void DataWriter::Fill(Seconds now) {
  while (ready_ && !waiting_.empty()) {
    const RemoteWrite& write = waiting_.front();
    const Bytes size = write.size();
    if (!flights_.empty() && in_flight_ + size > kWriteWindow) return;
    if (flights_.empty()) news_ = now;
    const uint64_t sequence = ++last_sequence_;
    const uint64_t source =
        owner_reads_ ? reinterpret_cast<uintptr_t>(write.local.data()) : uint64_t{0};
    sends_.push_back({EncodeData(WriteMessage{sequence, region_.key, write.offset, size, source}),
                      source == 0 ? write.local : std::span<const std::byte>(), sequence});
    in_flight_ += size;
    flights_.emplace(sequence, Flight{write});
    waiting_.pop_front();
  }
}

Result<void> DataWriter::Receive(std::string_view header, Seconds now) {
  ASSIGN_OR_RETURN(const DataMessage message, DecodeData(header));
  news_ = now;
  if (const auto* welcome = std::get_if<WelcomeMessage>(&message)) {
    if (welcome->refusal != DataRefusal::kNone) {
      return Error{Code::kUnavailable, RefusalText(welcome->refusal)};
    }
    if (ready_) return {};
    ready_ = true;
    owner_reads_ = welcome->reads;
    events_.push_back({.kind = TransportEvent::Kind::kConnected, .peer = region_.owner});
    Fill(now);
    return {};
  }
  const auto* answers = std::get_if<AcksMessage>(&message);
  if (answers == nullptr) return Error{Code::kDataLoss, "an owner sent what only writers send"};
  for (const Ack& ack : answers->acks) {
    const auto flight = flights_.find(ack.sequence);
    if (flight == flights_.end()) continue;
    flight->second.answer = ack.refusal;
    EndIfDone(flight, now);
  }
  return {};
}

Result<void> DataWriter::Sent(uint64_t token, bool ok, Seconds now) {
  if (!ok) return Error{Code::kUnavailable, "the connection was lost"};
  news_ = now;
  const auto flight = flights_.find(token);
  if (flight == flights_.end()) return {};
  flight->second.sent = true;
  EndIfDone(flight, now);
  return {};
}

void DataWriter::EndIfDone(Flights::iterator flight, Seconds now) {
  const auto& [write, sent, answer] = flight->second;
  if (!sent || !answer) return;
  const bool ok = *answer == DataRefusal::kNone;
  events_.push_back({.peer = write.to,
                     .token = write.token,
                     .size = write.size(),
                     .ok = ok,
                     .reason = ok ? "" : RefusalText(*answer)});
  in_flight_ -= write.size();
  flights_.erase(flight);
  Fill(now);
}

std::optional<Seconds> DataWriter::NextDeadline() const {
  if (!ready_) return greeted_by_;
  if (flights_.empty()) return std::nullopt;
  return news_ + silence_;
}

Result<void> DataWriter::CheckTime(Seconds now) const {
  const auto deadline = NextDeadline();
  if (!deadline || now < *deadline) return {};
  if (!ready_) return Error{Code::kDeadlineExceeded, "no answer to the connection attempt"};
  return Error{Code::kDeadlineExceeded, Format("no news of {} writes under way for {}",
                                               flights_.size(), HumanSeconds(silence_))};
}

void DataWriter::Fail(const std::string& reason) {
  const auto fail = [&](const RemoteWrite& write) {
    events_.push_back({.peer = write.to,
                       .token = write.token,
                       .size = write.size(),
                       .ok = false,
                       .reason = reason});
  };
  for (const auto& [sequence, flight] : flights_) fail(flight.write);
  for (const RemoteWrite& write : waiting_) fail(write);
  flights_.clear();
  waiting_.clear();
  sends_.clear();
  in_flight_ = Bytes();
  ready_ = false;
}

std::vector<DataWriter::Send> DataWriter::TakeSends() { return std::exchange(sends_, {}); }
std::vector<TransportEvent> DataWriter::TakeEvents() { return std::exchange(events_, {}); }

}  // namespace divisi
