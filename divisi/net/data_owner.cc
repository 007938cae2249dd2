#include "divisi/net/data_owner.h"

#include <algorithm>
#include <utility>

namespace divisi {

void DataOwner::AddRegion(uint64_t key, std::span<std::byte> memory) {
  CHECK(regions_.emplace(key, memory).second, "two regions with one key");
}

void DataOwner::Accepted(Connection connection, Seconds now) {
  const bool full = Unwelcomed() >= kMaxUnwelcomed;
  State& state = connections_[connection];
  state.hello_by = now + options_.connect;
  if (full) Close(connection, state, "too many connections without a welcome");
}

int64_t DataOwner::Unwelcomed() const {
  return std::ranges::count_if(connections_, [](const auto& entry) {
    return !entry.second.welcomed && !entry.second.closing;
  });
}

DataRefusal DataOwner::Check(const State& state, const WriteMessage& write, size_t bytes) const {
  CHECK(state.welcomed);
  if (state.closing) return DataRefusal::kRefused;
  const auto region = regions_.find(write.key);
  if (region == regions_.end()) return DataRefusal::kUnknownRegion;
  const Bytes size(static_cast<int64_t>(region->second.size()));
  if (write.size.value != static_cast<int64_t>(bytes)) return DataRefusal::kIncomplete;
  return InRegion(size, write.offset, write.size) ? DataRefusal::kNone : DataRefusal::kOutOfRange;
}

std::byte* DataOwner::Place(Connection connection, std::string_view header, size_t bytes) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return nullptr;
  State& state = found->second;
  const auto message = DecodeData(header);
  const auto* write = message ? std::get_if<WriteMessage>(&*message) : nullptr;
  if (write == nullptr) {
    Close(connection, state, "bytes behind something that is no write");
    return nullptr;
  }
  if (!state.welcomed) {
    Close(connection, state, "a write before the welcome");
    return nullptr;
  }
  const DataRefusal refusal = Check(state, *write, bytes);
  if (refusal == DataRefusal::kNone) {
    state.placed[write->sequence] = write->size;
    return regions_.at(write->key).data() + write->offset.value;
  }
  state.acks.push_back({write->sequence, refusal});
  return nullptr;
}

void DataOwner::Receive(Connection connection, std::string_view header, bool ok) {
  const auto found = connections_.find(connection);
  if (found == connections_.end() || found->second.closing) return;
  State& state = found->second;
  const auto message = DecodeData(header);
  if (!message) return Close(connection, state, message.error().message);
  if (const auto* hello = std::get_if<HelloMessage>(&*message)) {
    return Hello(connection, state, *hello);
  }
  const auto* write = std::get_if<WriteMessage>(&*message);
  if (write == nullptr) return Close(connection, state, "a writer sent what only owners send");
  if (!state.welcomed) return Close(connection, state, "a write before the welcome");
  const auto placed = state.placed.extract(write->sequence);
  DataRefusal refusal = DataRefusal::kIncomplete;
  Bytes size = write->size;
  if (write->size.value == 0 || write->source != 0) {
    refusal = Fetch(state, *write);
  } else if (ok && !placed.empty()) {  // Checked by Place
    refusal = DataRefusal::kNone;
    size = placed.mapped();
  }
  if (refusal == DataRefusal::kNone) received_ += size;
  state.acks.push_back({write->sequence, refusal});
}

DataRefusal DataOwner::Fetch(const State& state, const WriteMessage& write) const {
  const auto bytes = static_cast<size_t>(write.size.value);
  const DataRefusal refusal = Check(state, write, bytes);
  if (refusal != DataRefusal::kNone || bytes == 0) return refusal;
  std::byte* const to = regions_.at(write.key).data() + write.offset.value;
  const bool whole = state.memory.pid != 0 && read_(state.memory, write.source, to, bytes);
  return whole ? DataRefusal::kNone : DataRefusal::kIncomplete;
}

void DataOwner::Hello(Connection connection, State& state, const HelloMessage& hello) {
  if (state.greeted) return;  // It came twice.
  state.greeted = true;
  DataRefusal refusal = DataRefusal::kNone;
  if (hello.to != options_.self) {
    refusal = DataRefusal::kOtherProcess;
  } else if (IsRefused(hello.from)) {
    refusal = DataRefusal::kRefused;
  } else if (!regions_.contains(hello.key)) {
    refusal = DataRefusal::kUnknownRegion;
  }
  if (refusal != DataRefusal::kNone) {
    // The writer closes it when it has read this; hello_by closes it otherwise.
    actions_.push_back({connection, EncodeData(WelcomeMessage{refusal, false})});
    return;
  }
  state.writer = hello.from;
  if (options_.read_peers && read_(hello.memory, 0, nullptr, 0)) state.memory = hello.memory;
  for (auto& [other, earlier] : connections_) {
    if (other < connection && earlier.writer == hello.from) {
      Close(other, earlier, "its writer connected anew");
    }
  }
  WelcomeWaiting();
}

void DataOwner::Close(Connection connection, State& state, const std::string& reason) {
  if (state.closing) return;
  state.closing = true;
  actions_.push_back({.connection = connection, .close = reason});
}

void DataOwner::WelcomeWaiting() {
  std::set<NodeId> busy;  // Writers with an earlier connection that is not closed yet.
  for (auto& [connection, state] : connections_) {
    if (!state.writer || !busy.insert(*state.writer).second) continue;
    if (state.welcomed || state.closing || IsRefused(*state.writer)) continue;
    state.welcomed = true;
    actions_.push_back(
        {connection, EncodeData(WelcomeMessage{DataRefusal::kNone, state.memory.pid != 0})});
  }
}

void DataOwner::Closed(Connection connection) {
  if (connections_.erase(connection) > 0) WelcomeWaiting();
}

void DataOwner::Disconnect(NodeId writer) {
  for (auto& [connection, state] : connections_) {
    if (state.writer == writer) Close(connection, state, "the owner ended it");
  }
}

bool DataOwner::HasConnection(NodeId writer) const {
  return std::any_of(connections_.begin(), connections_.end(),
                     [&](const auto& entry) { return entry.second.writer == writer; });
}

void DataOwner::CheckTime(Seconds now) {
  for (auto& [connection, state] : connections_) {
    if (!state.welcomed && now >= state.hello_by) Close(connection, state, "no Hello in time");
  }
}

std::optional<Seconds> DataOwner::NextDeadline() const {
  std::optional<Seconds> next;
  for (const auto& [connection, state] : connections_) {
    if (state.welcomed || state.closing) continue;
    if (!next || state.hello_by < *next) next = state.hello_by;
  }
  return next;
}

std::vector<DataOwner::Action> DataOwner::TakeActions() {
  for (auto& [connection, state] : connections_) {
    if (state.closing) continue;
    for (size_t at = 0; at < state.acks.size(); at += kMaxAcks) {
      const auto begin = state.acks.begin() + static_cast<ptrdiff_t>(at);
      const size_t count = std::min(kMaxAcks, state.acks.size() - at);
      actions_.push_back(
          {connection, EncodeData(AcksMessage{{begin, begin + static_cast<ptrdiff_t>(count)}})});
    }
    state.acks.clear();
  }
  return std::exchange(actions_, {});
}

}  // namespace divisi
