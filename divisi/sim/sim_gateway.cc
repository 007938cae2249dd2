#include "divisi/sim/sim_gateway.h"

#include <variant>

namespace divisi {

void SimGateway::Frame(LinkId link, ClusterMessage message, Seconds now) {
  const auto from = registry_.NodeOf(link);
  if (auto* hello = std::get_if<HelloMessage>(&message)) {
    registry_.Hello(link, std::move(*hello), now);
  } else if (!from) {
    closes_.push_back(link);
  } else if (auto* relay = std::get_if<RelayMessage>(&message)) {
    Relay(*from, std::move(*relay), now);
  } else if (const auto* report = std::get_if<ReportMessage>(&message)) {
    registry_.Report(link, *report);
    dispatcher_.Report(*from, report->rates, report->prompt_backlog, now);
  } else if (const auto* leave = std::get_if<LeaveMessage>(&message)) {
    registry_.Leave(link, *leave);
  } else if (const auto* gone = std::get_if<PeerGoneMessage>(&message)) {
    registry_.Barred(gone->node);
  }
}

void SimGateway::Relay(NodeId from, RelayMessage relay, Seconds now) {
  if (relay.from != from) return;
  if (relay.to == id_) return dispatcher_.Receive(from, std::move(relay.message), now);
  if (const auto link = registry_.LinkOf(relay.to)) frames_.push_back({*link, std::move(relay)});
}

void SimGateway::Tick(Seconds now) {
  registry_.Tick(now);
  dispatcher_.Tick(now);
}

void SimGateway::Settle(Seconds now) {
  for (RegistryAction& action : registry_.TakeActions()) {
    std::visit([&](auto& each) { Do(each, now); }, action);
  }
  for (Outgoing& outgoing : dispatcher_.TakeMessages()) {
    const auto link = registry_.LinkOf(outgoing.to);
    if (!link) continue;
    frames_.push_back({*link, RelayMessage{id_, outgoing.to, std::move(outgoing.message)}});
  }
}

void SimGateway::Do(JoinedAction& action, Seconds) {
  const auto member = registry_.members().find(action.node);
  if (member == registry_.members().end()) return;
  const HelloMessage& hello = member->second.hello;
  dispatcher_.AddWorker(action.node, action.role,
                        {.max_sequences = hello.max_sequences,
                         .step_tokens = hello.step_tokens,
                         .page = Bytes(hello.page_bytes)});
}

void SimGateway::Do(DrainAction& action, Seconds now) {
  dispatcher_.Drain(action.node, now, action.within);
}

}  // namespace divisi
