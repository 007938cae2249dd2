#include "divisi/control/registry.h"

#include <utility>

#include "divisi/control/frame_connection.h"
#include "divisi/core/format.h"
#include "divisi/core/nearest.h"

namespace divisi {

Registry::Registry(NodeId self, RegistryOptions options)
    : self_(self), options_(std::move(options)), expected_(options_.expected) {}

std::vector<RegistryAction> Registry::TakeActions() { return std::exchange(actions_, {}); }

void Registry::Send(LinkId link, ClusterMessage message) {
  actions_.emplace_back(SendAction{link, std::move(message)});
}

void Registry::SendAll(const ClusterMessage& message, NodeId but) {
  for (const auto& [node, member] : members_) {
    if (node != but && member.link) Send(*member.link, message);
  }
}

void Registry::Note(const char* event, const std::string& worker, const std::string& why) {
  actions_.emplace_back(NoteAction{event, worker, why});
}

void Registry::Reject(LinkId link, const std::string& name, const std::string& reason) {
  Note("worker refused", name, reason);
  Send(link, RejectMessage{reason});
  actions_.emplace_back(CloseAction{link, reason});
}

void Registry::Hello(LinkId link, HelloMessage hello, Seconds) {
  if (node_of_.contains(link)) {
    actions_.emplace_back(CloseAction{link, "a second hello"});
    return;
  }
  if (gone_.contains(hello.node)) {
    return Reject(link, hello.name, "this worker was declared dead; it may come back as a new one");
  }
  if (!expected_) expected_ = hello.compatibility;
  if (const auto difference = hello.compatibility.DifferenceFrom(*expected_); !difference.empty()) {
    return Reject(link, hello.name, difference);
  }
  const NodeId node = hello.node;
  const bool back = members_.contains(node);
  Member& member = members_[node];
  if (member.link) {
    node_of_.erase(*member.link);
    actions_.emplace_back(CloseAction{*member.link, "the worker has a newer connection"});
  }
  // A role that an operator gave it outlives a lost connection.
  if (back) hello.role = member.hello.role;
  member.link = link;
  member.hello = std::move(hello);
  node_of_[link] = node;
  Send(link, WelcomeMessage{self_});
  for (const auto& [other, entry] : members_) {
    if (other == node) continue;
    Send(link, PeerUpMessage{other, entry.hello.data_address, entry.hello.data_descriptor});
  }
  if (back) return;
  Note("worker joined", member.hello.name);
  actions_.emplace_back(JoinedAction{node, member.hello.role});
  SendAll(PeerUpMessage{node, member.hello.data_address, member.hello.data_descriptor}, node);
}

void Registry::Report(LinkId link, const ReportMessage& report) {
  if (const auto node = NodeOf(link)) members_.at(*node).report = report;
}

void Registry::Ended(LinkId link, const std::string& why, Seconds now) {
  const auto known = node_of_.find(link);
  if (known == node_of_.end()) return;
  Member& member = members_.at(known->second);
  node_of_.erase(known);
  member.link.reset();
  member.lost_at = now;
  Note("worker lost", member.hello.name, why);
}

void Registry::Remove(NodeId node) {
  const auto member = members_.find(node);
  Note("worker gone", member->second.hello.name);
  members_.erase(member);
  gone_.insert(node);
  actions_.emplace_back(GoneAction{node});
  SendAll(PeerGoneMessage{node}, node);
}

void Registry::Tick(Seconds now) {
  std::vector<NodeId> lost;
  for (const auto& [node, member] : members_) {
    if (!member.link && now - member.lost_at >= options_.grace) lost.push_back(node);
  }
  for (const NodeId node : lost) Remove(node);
  if (now - pinged_ < kHeartbeat) return;
  pinged_ = now;
  SendAll(PingMessage{}, NodeId{});
}

void Registry::SetRole(NodeId node, WorkerRole role) { members_.at(node).hello.role = role; }

std::optional<NodeId> Registry::NodeOf(LinkId link) const {
  const auto found = node_of_.find(link);
  if (found == node_of_.end()) return std::nullopt;
  return found->second;
}

std::optional<LinkId> Registry::LinkOf(NodeId node) const {
  const auto found = members_.find(node);
  return found == members_.end() ? std::nullopt : found->second.link;
}

Result<NodeId> Registry::Named(const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& [node, member] : members_) {
    if (member.hello.name == name) return node;
    names.push_back(member.hello.name);
  }
  return Error{Code::kNotFound, Format("there is no worker '{}'{}", name, DidYouMean(name, names))};
}

}  // namespace divisi
