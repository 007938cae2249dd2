#include "divisi/control/gateway_core.h"

#include <utility>

#include "divisi/control/member_keys.h"

namespace divisi {

GatewayCore::GatewayCore(NodeId self, GatewayCoreOptions options)
    : self_(self),
      pages_(std::move(options.pages)),
      dispatcher_(self, std::move(options.dispatch), pages_.directory()),
      registry_(self, std::move(options.registry)) {}

std::vector<GatewayAction> GatewayCore::TakeActions() { return std::exchange(actions_, {}); }

// ---- The world

void GatewayCore::Receive(LinkId link, ClusterMessage message, Seconds now) {
  On(link, std::move(message), now);
  Settle(now);
}

void GatewayCore::On(LinkId link, ClusterMessage message, Seconds now) {
  if (auto* hello = std::get_if<HelloMessage>(&message)) {
    return registry_.Hello(link, std::move(*hello));
  }
  if (auto* query = std::get_if<QueryMessage>(&message)) {
    actions_.emplace_back(QueryAction{link, std::move(query->words)});
    return;
  }
  if (std::holds_alternative<PingMessage>(message)) return;
  if (const auto from = registry_.NodeOf(link)) {
    return OnMember(*from, link, std::move(message), now);
  }
  actions_.emplace_back(CloseAction{link, "no hello came first"});
}

void GatewayCore::OnMember(NodeId from, LinkId link, ClusterMessage message, Seconds now) {
  if (auto* relay = std::get_if<RelayMessage>(&message)) {
    Relay(from, std::move(*relay), now);
  } else if (const auto* report = std::get_if<ReportMessage>(&message)) {
    registry_.Report(link, *report);
    dispatcher_.Report(from, report->rates, report->prompt_backlog, now);
    actions_.emplace_back(ReportedAction{from});
  } else if (const auto* leave = std::get_if<LeaveMessage>(&message)) {
    registry_.Leave(link, *leave);
  } else if (const auto* gone = std::get_if<PeerGoneMessage>(&message)) {
    registry_.Barred(gone->node);
  }
}

void GatewayCore::Relay(NodeId from, RelayMessage relay, Seconds now) {
  if (relay.from != from) return;  // Nobody speaks for another.
  if (relay.to == self_) return dispatcher_.Receive(from, std::move(relay.message), now);
  if (const auto link = registry_.LinkOf(relay.to)) {
    actions_.emplace_back(SendAction{*link, std::move(relay)});
  }
}

void GatewayCore::Ended(LinkId link, const std::string& why, Seconds now) {
  registry_.Ended(link, why, now);
  Settle(now);
}

void GatewayCore::Told(const DirectoryEvent& event, Seconds now) {
  Take(event, now);
  Settle(now);
}

void GatewayCore::Take(const DirectoryEvent& event, Seconds now) {
  using Kind = DirectoryEvent::Kind;
  if (event.kind == Kind::kUp) return registry_.DirectoryUp(now);
  if (event.kind == Kind::kDown) return registry_.DirectoryDown(now);
  const auto key = ParseMemberKey(event.key);
  if (!key) return;
  const bool there = event.kind == Kind::kPut;
  if (key->kind == MemberKind::kWorker) {
    return there ? registry_.Leased(key->node) : registry_.LeaseEnded(key->node);
  }
  if (key->kind == MemberKind::kDead && there) registry_.Declared(key->node);
}

void GatewayCore::Heard(NodeId holder, const EventUpdate& update, Seconds) {
  pages_.Heard(holder, update);
}

void GatewayCore::HeardStore(uint64_t store, const EventUpdate& update, Seconds) {
  pages_.HeardStore(store, update);
}

void GatewayCore::Tick(Seconds now) {
  registry_.Tick(now);
  dispatcher_.Tick(now);
  Settle(now);
}

// ---- Clients and operators

std::optional<KeySpace> GatewayCore::PageSpace() const {
  const Compatibility& members = registry_.compatibility();
  if (pages_.directory() == nullptr || members.page_format.empty()) return std::nullopt;
  return KeySpace{.model_fingerprint = {members.model.begin(), members.model.end()},
                  .page_format = members.page_format};
}

Result<uint64_t> GatewayCore::Submit(Request request, Seconds now, std::vector<BlockKey> pages) {
  auto number = dispatcher_.Submit(std::move(request), now, std::move(pages));
  Settle(now);
  return number;
}

void GatewayCore::Cancel(uint64_t request, Seconds now) {
  dispatcher_.Cancel(request, now);
  Settle(now);
}

void GatewayCore::Drain(NodeId node, Seconds within, Seconds now) {
  registry_.Drain(node, within);
  dispatcher_.Drain(node, now, within);
  Settle(now);
}

Result<void> GatewayCore::Enlist(NodeId node, WorkerRole role, Seconds now) {
  const Registry::Member& member = registry_.members().at(node);
  if (member.leaving) {
    return Error{Code::kInvalidArgument,
                 member.hello.name + " was asked to stop and ends; it takes no new requests"};
  }
  registry_.SetRole(node, role);
  if (!member.away) dispatcher_.AddWorker(node, role);
  Settle(now);
  return {};
}

// ---- What is to be done

void GatewayCore::Settle(Seconds now) {
  for (RegistryAction& action : registry_.TakeActions()) {
    std::visit([&](auto& each) { Do(each, now); }, action);
  }
  if (registry_.changes() != members_seen_) {  // This is after every message.
    members_seen_ = registry_.changes();
    pages_.Members(registry_);
  }
  for (ClusterPages::Action& action : pages_.TakeActions()) {
    std::visit([&](auto& each) { actions_.emplace_back(std::move(each)); }, action);
  }
  for (Outgoing& outgoing : dispatcher_.TakeMessages()) {
    const auto link = registry_.LinkOf(outgoing.to);
    if (!link) continue;  // Its lease, or a retry, ends it.
    actions_.emplace_back(
        SendAction{*link, RelayMessage{self_, outgoing.to, std::move(outgoing.message)}});
  }
}

void GatewayCore::Do(JoinedAction& action, Seconds) {
  const auto member = registry_.members().find(action.node);
  if (member == registry_.members().end()) return;  // And gone again
  const HelloMessage& hello = member->second.hello;
  dispatcher_.AddWorker(action.node, action.role,
                        {.max_sequences = hello.max_sequences,
                         .step_tokens = hello.step_tokens,
                         .page = Bytes(hello.page_bytes),
                         .pool = hello.pool,
                         .layers = static_cast<int>(hello.layers),
                         .reads_peers = hello.reads_peers,
                         .exported_at = hello.exported_at});
}

void GatewayCore::Do(DrainAction& action, Seconds now) {
  dispatcher_.Drain(action.node, now, action.within);
}

void GatewayCore::Do(VouchAction& action, Seconds) {
  std::string key = ReachKey(action.node, self_);
  if (action.reaches) {
    actions_.emplace_back(KeepAction{std::move(key), ""});
  } else {
    actions_.emplace_back(DropAction{std::move(key)});
  }
}

void GatewayCore::Do(BuryAction& action, Seconds) {
  actions_.emplace_back(DeclareAction{.key = DeadKey(action.node),
                                      .absent = WorkerKey(action.node),
                                      .none_of = ReachPrefix(action.node)});
}

}  // namespace divisi
