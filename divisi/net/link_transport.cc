#include "divisi/net/link_transport.h"

#include <algorithm>
#include <map>
#include <utility>

#include "divisi/core/random.h"
#include "divisi/net/data_owner.h"
#include "divisi/net/data_writer.h"

namespace divisi {
namespace {

// What an owner has taken is answered at least this often, so that the writer's next writes are
// there before it has taken all of this round's.
constexpr Bytes kAnswerAfter{1 << 20};

class LinkTransport final : public Transport {
 public:
  LinkTransport(const TransportOptions& options, const Clock& clock, LinkTransportParts parts)
      : options_(options),
        clock_(clock),
        owner_(options, std::move(parts.read)),
        keys_(parts.seed, options.self.value),
        proof_(keys_.Next64() | 1),
        place_([this](LinkId connection, std::string_view header, size_t bytes) {
          return owner_.Place(connection, header, bytes);
        }),
        link_(std::move(parts.link)) {}

  const std::string& address() const override { return link_->address(); }
  Result<RegionDescriptor> Register(std::span<std::byte> memory) override;
  Result<void> Connect(const RegionDescriptor& region, const std::string& address) override;
  Result<void> Write(const RemoteWrite& write) override;
  Result<void> Disconnect(NodeId peer) override;
  Result<void> Refuse(NodeId peer) override;
  std::vector<TransportEvent> Poll() override;
  bool Arm() override { return events_.empty() && link_->Arm(); }
  int fd() const override { return link_->fd(); }
  std::optional<Seconds> NextTimer() const override;
  TransportStats stats() const override;

 private:
  struct Outgoing {
    LinkId link = 0;
    DataWriter writer;
    bool closing = false;  // Until kClosed of the link.
    std::string reason;
  };
  using Writers = std::map<NodeId, Outgoing>;

  void Step();
  void Answer();
  void Handle(const LinkEvent& event, Seconds now);
  void HandleOutgoing(Outgoing& out, const LinkEvent& event, Seconds now);
  void EndOutgoing(Writers::iterator out);
  void Lose(Outgoing& out, const std::string& reason);
  void Report(DataWriter& writer);
  Writers::iterator OutgoingOf(LinkId link);

  const TransportOptions options_;
  const Clock& clock_;
  DataOwner owner_;
  Random keys_;
  const uint64_t proof_;  // Owners find it here, in this process's memory.
  const Link::Place place_;
  Bytes answered_;  // Of what the owner received, at the last Answer.
  Writers writers_;
  TransportStats stats_;
  std::vector<TransportEvent> events_;
  // Last: its end calls nothing above, and nothing above outlives what it reads.
  std::unique_ptr<Link> link_;
};

Result<RegionDescriptor> LinkTransport::Register(std::span<std::byte> memory) {
  RETURN_IF_ERROR(link_->Register(memory));
  const uint64_t key = keys_.Next64();
  owner_.AddRegion(key, memory);
  return RegionDescriptor{options_.self, key, Bytes(static_cast<int64_t>(memory.size()))};
}

Result<void> LinkTransport::Connect(const RegionDescriptor& region, const std::string& address) {
  if (owner_.IsRefused(region.owner)) {
    return Error{Code::kUnavailable, "that process was declared dead; it must come back anew"};
  }
  if (const auto out = writers_.find(region.owner); out != writers_.end()) {
    if (out->second.closing) {
      return Error{Code::kUnavailable, "the earlier connection still ends: wait for kLost"};
    }
    if (out->second.writer.region() == region) return {};
    return Error{Code::kInvalidArgument,
                 "a connection to another region of that process: Disconnect first"};
  }
  ASSIGN_OR_RETURN(const LinkId link, link_->Dial(address));
  const PeerMemory own = options_.read_peers ? OwnMemory(&proof_) : PeerMemory();
  writers_.emplace(region.owner, Outgoing{link, DataWriter(options_, region, own, clock_.Now())});
  Step();
  return {};
}

Result<void> LinkTransport::Write(const RemoteWrite& write) {
  const auto out = writers_.find(write.to);
  if (out == writers_.end() || out->second.closing) {
    return Error{Code::kUnavailable, "no connection to that process: Connect first"};
  }
  RETURN_IF_ERROR(out->second.writer.Write(write, clock_.Now()));
  for (auto& send : out->second.writer.TakeSends()) {
    link_->Send(out->second.link, std::move(send.header), send.body, send.token);
  }
  return {};
}

void LinkTransport::Lose(Outgoing& out, const std::string& reason) {
  if (out.closing) return;
  out.closing = true;
  out.reason = reason;
  link_->Close(out.link, reason);
}

Result<void> LinkTransport::Disconnect(NodeId peer) {
  if (const auto out = writers_.find(peer); out != writers_.end()) {
    Lose(out->second, "disconnected");
  }
  owner_.Disconnect(peer);
  Step();
  if (!owner_.HasConnection(peer) && !writers_.contains(peer)) return {};
  return Error{
      Code::kUnavailable,
      "a connection still ends, and writes of that process may land until then: ask again"};
}

Result<void> LinkTransport::Refuse(NodeId peer) {
  owner_.Refuse(peer);
  return Disconnect(peer);
}

LinkTransport::Writers::iterator LinkTransport::OutgoingOf(LinkId link) {
  return std::find_if(writers_.begin(), writers_.end(),
                      [link](const auto& entry) { return entry.second.link == link; });
}

void LinkTransport::HandleOutgoing(Outgoing& out, const LinkEvent& event, Seconds now) {
  Result<void> result;
  if (event.kind == LinkEvent::Kind::kSent) {
    result = out.writer.Sent(event.token, event.ok, now);
  } else if (event.kind == LinkEvent::Kind::kMessage) {
    result = out.writer.Receive(event.header, now);
  }
  if (!result) Lose(out, result.error().message);
}

void LinkTransport::EndOutgoing(Writers::iterator out) {
  const NodeId peer = out->first;
  out->second.writer.Fail(out->second.reason);
  Report(out->second.writer);
  events_.push_back({.kind = TransportEvent::Kind::kLost,
                     .peer = peer,
                     .ok = false,
                     .reason = out->second.reason});
  writers_.erase(out);
}

void LinkTransport::Handle(const LinkEvent& event, Seconds now) {
  if (event.kind == LinkEvent::Kind::kAccepted) return owner_.Accepted(event.link, now);
  if (owner_.Knows(event.link)) {
    if (event.kind == LinkEvent::Kind::kClosed) owner_.Closed(event.link);
    if (event.kind == LinkEvent::Kind::kMessage) {
      owner_.Receive(event.link, event.header, event.ok);
      if (owner_.received() - answered_ >= kAnswerAfter) Answer();
    }
    return;
  }
  const auto out = OutgoingOf(event.link);
  if (out == writers_.end()) return;
  if (event.kind == LinkEvent::Kind::kClosed) {
    if (out->second.reason.empty()) out->second.reason = event.reason;
    return EndOutgoing(out);
  }
  if (!out->second.closing) HandleOutgoing(out->second, event, now);
}

void LinkTransport::Report(DataWriter& writer) {
  for (TransportEvent& event : writer.TakeEvents()) {
    if (event.kind == TransportEvent::Kind::kWritten) {
      ++(event.ok ? stats_.writes : stats_.failed_writes);
      if (event.ok) stats_.bytes_written += event.size.value;
    }
    events_.push_back(std::move(event));
  }
}

void LinkTransport::Answer() {
  answered_ = owner_.received();
  for (DataOwner::Action& action : owner_.TakeActions()) {
    if (!action.close.empty()) {
      link_->Close(action.connection, action.close);
    } else {
      link_->Send(action.connection, std::move(action.message), {}, 0);
    }
  }
}

// Whatever came in, then whatever goes out because of it.
void LinkTransport::Step() {
  const auto link_events = link_->Progress(place_);
  const Seconds now = clock_.Now();
  for (const LinkEvent& event : link_events) Handle(event, now);
  owner_.CheckTime(now);
  Answer();
  for (auto& [peer, out] : writers_) {
    if (out.closing) continue;
    if (const auto time = out.writer.CheckTime(now); !time) Lose(out, time.error().message);
    for (DataWriter::Send& send : out.writer.TakeSends()) {
      link_->Send(out.link, std::move(send.header), send.body, send.token);
    }
    Report(out.writer);
  }
}

std::vector<TransportEvent> LinkTransport::Poll() {
  Step();
  return std::exchange(events_, {});
}

std::optional<Seconds> LinkTransport::NextTimer() const {
  std::optional<Seconds> next = owner_.NextDeadline();
  if (const auto due = link_->NextDue(); due && (!next || *due < *next)) next = due;
  for (const auto& [peer, out] : writers_) {
    const auto deadline = out.writer.NextDeadline();
    if (deadline && !out.closing && (!next || *deadline < *next)) next = deadline;
  }
  if (!next) return next;
  return std::max(Seconds(0), *next - clock_.Now());
}

TransportStats LinkTransport::stats() const {
  TransportStats stats = stats_;
  stats.bytes_received = owner_.received().value;
  stats.connections = static_cast<int64_t>(link_->open_links());
  return stats;
}

}  // namespace

std::unique_ptr<Transport> MakeLinkTransport(const TransportOptions& options, const Clock& clock,
                                             LinkTransportParts parts) {
  return std::make_unique<LinkTransport>(options, clock, std::move(parts));
}

}  // namespace divisi
