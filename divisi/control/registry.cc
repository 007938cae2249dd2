#include "divisi/control/registry.h"

#include <algorithm>
#include <utility>

#include "divisi/control/frame_connection.h"
#include "divisi/control/member_keys.h"
#include "divisi/core/format.h"
#include "divisi/core/nearest.h"

namespace divisi {
namespace {

// A transaction that found the worker alive is tried again after this.
constexpr Seconds kBuryAgain{1};
// One that several gateways doubted and nobody has seen since is forgotten here.
constexpr Seconds kForget{60};
// Forgotten lives of which an operator's word is kept, some 400 kB: beyond it the oldest goes. As
// many as counters are kept of (serve/cluster_totals.cc).
constexpr size_t kMostRemembered = 4096;
// In one error.
constexpr size_t kMostIdsShown = 8;

// The longest of what is promised would end early on this worker, or be refused.
std::string ShortContext(int64_t has, int64_t promised) {
  return Format(
      "context: this worker has {} tokens and the gateway promises {}; give the worker more "
      "--kv-memory or a larger --max-model-len, or start the gateway with --max-model-len {}",
      has, promised, has);
}

}  // namespace

Registry::Registry(NodeId self, RegistryOptions options)
    : self_(self), options_(std::move(options)) {}

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

// ---- Coming

void Registry::Reject(LinkId link, const std::string& name, RejectMessage reject) {
  Note("worker refused", name, reject.reason);
  const std::string reason = reject.reason;
  Send(link, std::move(reject));
  actions_.emplace_back(CloseAction{link, reason});
}

void Registry::Hello(LinkId link, HelloMessage hello) {
  if (node_of_.contains(link)) {
    actions_.emplace_back(CloseAction{link, "a second hello"});
    return;
  }
  if (gone_.contains(hello.node)) {
    return Reject(link, hello.name,
                  {"this worker was declared dead; it may come back as a new one",
                   /*dead=*/true});
  }
  if (members_.empty()) expected_ = hello.compatibility;
  expected_.protocol = kClusterProtocol;
  if (!options_.model.empty()) expected_.model = options_.model;
  if (!options_.tokenizer.empty()) expected_.tokenizer = options_.tokenizer;
  if (auto difference = hello.compatibility.DifferenceFrom(expected_); !difference.empty()) {
    return Reject(link, hello.name, {std::move(difference)});
  }
  if (hello.context < options_.context) {
    return Reject(link, hello.name, {ShortContext(hello.context, options_.context)});
  }
  const NodeId node = hello.node;
  const bool back = members_.contains(node);
  ++changes_;
  Member& member = members_[node];
  if (member.link) {
    node_of_.erase(*member.link);
    actions_.emplace_back(CloseAction{*member.link, "the worker has a newer connection"});
  }
  if (!back) Recall(node, member);
  if (member.given) hello.role = *member.given;
  member.link = link;
  member.hello = std::move(hello);
  node_of_[link] = node;
  Welcome(link, node);
  if (!back) Note("worker joined", member.hello.name);
  if (back && !member.away) return;
  if (back) Note("worker back", member.hello.name);
  member.away = member.doubted = false;
  Present(node);
}

void Registry::Welcome(LinkId link, NodeId node) {
  Send(link, WelcomeMessage{self_});
  if (options_.lease) actions_.emplace_back(VouchAction{node, true});
  for (const auto& [other, entry] : members_) {
    if (other == node) continue;
    if (entry.away) {
      Send(link, PeerGoneMessage{other, entry.doubted ? PeerLoss::kDoubted : PeerLoss::kUnreached});
    } else {
      Send(link, PeerUpMessage{other, entry.hello.data_address, entry.hello.data_descriptor});
    }
  }
}

void Registry::Present(NodeId node) {
  const Member& member = members_.at(node);
  actions_.emplace_back(JoinedAction{node, member.hello.role});
  if (member.drain) actions_.emplace_back(DrainAction{node, *member.drain});
  SendAll(PeerUpMessage{node, member.hello.data_address, member.hello.data_descriptor}, node);
}

void Registry::Report(LinkId link, const ReportMessage& report) {
  if (const auto node = NodeOf(link)) members_.at(*node).report = report;
}

// ---- Going

void Registry::Leave(LinkId link, const LeaveMessage& leave) {
  const auto node = NodeOf(link);
  if (!node) return;
  if (leave.now) {
    node_of_.erase(link);
    members_.at(*node).link.reset();
    if (options_.lease) actions_.emplace_back(VouchAction{*node, false});
    actions_.emplace_back(CloseAction{link, "it left"});
    return Remove(*node, "it left");
  }
  Note("worker leaving", members_.at(*node).hello.name);
  members_.at(*node).leaving = true;
  members_.at(*node).drain = leave.drain;
  actions_.emplace_back(DrainAction{*node, leave.drain});
}

void Registry::Barred(NodeId peer) {
  if (members_.contains(peer)) Remove(peer, "another worker had to take it for gone");
}

void Registry::Ended(LinkId link, const std::string& why, Seconds now) {
  const auto known = node_of_.find(link);
  if (known == node_of_.end()) return;
  const NodeId node = known->second;
  Member& member = members_.at(node);
  node_of_.erase(known);
  member.link.reset();
  member.report.reset();
  member.lost_at = now;
  if (options_.lease) actions_.emplace_back(VouchAction{node, false});
  Note("worker lost", member.hello.name, why);
}

// Here its requests are tried elsewhere; its peers speak to it by other gateways.
void Registry::GoAway(NodeId node, Member& member, Seconds now) {
  member.away = true;
  member.bury_at = now;
  Note("worker away", member.hello.name);
  actions_.emplace_back(LostAction{node});
  SendAll(PeerGoneMessage{node, PeerLoss::kUnreached}, node);
}

void Registry::Doubt(NodeId node, Member& member) {
  member.doubted = true;
  Note("worker doubted", member.hello.name);
  SendAll(PeerGoneMessage{node, PeerLoss::kDoubted}, node);
}

bool Registry::Judge(NodeId node, Member& member, Seconds now) {
  if (!options_.lease) {
    if (!member.doubted) Doubt(node, member);
    return now - member.lost_at >= kForget;
  }
  const Seconds lease = *options_.lease;
  const bool known = now - directory_since_ >= lease;
  if (directory_up_ && known && !leased_.contains(node) && now >= member.bury_at) {
    member.bury_at = now + kBuryAgain;
    actions_.emplace_back(BuryAction{node});
  }
  if (!directory_up_ && known && now - member.lost_at >= lease && !member.doubted) {
    Doubt(node, member);
  }
  return false;
}

void Registry::Tick(Seconds now) {
  std::vector<NodeId> dead, forgotten;
  for (auto& [node, member] : members_) {
    if (member.link || now - member.lost_at < options_.grace) continue;
    if (!options_.lease && member.hello.gateways <= 1) {
      dead.push_back(node);
      continue;
    }
    if (!member.away) GoAway(node, member, now);
    if (Judge(node, member, now)) forgotten.push_back(node);
  }
  for (const NodeId node : dead) Remove(node, "no connection");
  for (const NodeId node : forgotten) Forget(node, now);
  if (now - pinged_ < kHeartbeat) return;
  pinged_ = now;
  SendAll(PingMessage{}, NodeId{});
}

void Registry::Forget(NodeId node, Seconds now) {
  const auto found = members_.find(node);
  const Member& member = found->second;
  if (member.given || member.drain) {
    if (forgotten_.size() >= kMostRemembered) {
      forgotten_.erase(std::ranges::min_element(
          forgotten_, {}, [](const auto& entry) { return entry.second.since; }));
    }
    forgotten_[node] = {member.given, member.drain, now};
  }
  members_.erase(found);
  ++changes_;
}

void Registry::Recall(NodeId node, Member& member) {
  const auto found = forgotten_.find(node);
  if (found == forgotten_.end()) return;
  member.given = found->second.role;
  member.drain = found->second.drain;
  forgotten_.erase(found);
}

void Registry::Remove(NodeId node, const std::string& why) {
  gone_.insert(node);
  forgotten_.erase(node);
  const auto found = members_.find(node);
  if (found == members_.end()) return;
  const Member member = std::move(found->second);
  members_.erase(found);
  ++changes_;
  Note("worker gone", member.hello.name, why);
  if (member.link) {
    node_of_.erase(*member.link);
    Reject(*member.link, member.hello.name, {"this worker was declared dead", /*dead=*/true});
    if (options_.lease) actions_.emplace_back(VouchAction{node, false});
  }
  if (!member.away) actions_.emplace_back(LostAction{node});
  SendAll(PeerGoneMessage{node, PeerLoss::kConfirmed}, node);
}

// ---- The directory

void Registry::DirectoryUp(Seconds now) {
  if (directory_up_) return;
  directory_up_ = true;
  directory_since_ = now;
  if (!options_.lease) return;
  for (const auto& [node, member] : members_) {
    if (member.link) actions_.emplace_back(VouchAction{node, true});
  }
}

void Registry::DirectoryDown(Seconds now) {
  if (!directory_up_) return;
  directory_up_ = false;
  directory_since_ = now;
}

void Registry::Leased(NodeId node) { leased_.insert(node); }

void Registry::Declared(NodeId node) { Remove(node, "its lease ended, and nobody reaches it"); }

// ---- Asking

void Registry::SetRole(NodeId node, WorkerRole role) {
  Member& member = members_.at(node);
  member.hello.role = role;
  member.given = role;
  member.drain.reset();
}

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
  std::map<int, std::vector<NodeId>> found;  // The first of them are meant.
  for (const auto& [node, member] : members_) {
    if (NodeText(node) == name) return node;
    names.push_back(member.hello.name);
    if (member.hello.name == name) found[!member.link ? 2 : member.leaving ? 1 : 0].push_back(node);
  }
  if (found.empty()) {
    return Error{Code::kNotFound,
                 Format("there is no worker '{}'{}", name, DidYouMean(name, names))};
  }
  const std::vector<NodeId>& meant = found.begin()->second;
  if (meant.size() == 1) return meant[0];
  std::string ids;
  for (size_t i = 0; i < std::min(meant.size(), kMostIdsShown); ++i) {
    ids += Format("{}{}", i == 0 ? "" : ", ", NodeText(meant[i]));
  }
  return Error{Code::kInvalidArgument,
               Format("{} workers are named '{}': give the id of one, {}{}", meant.size(), name,
                      ids, meant.size() > kMostIdsShown ? ", ..." : "")};
}

}  // namespace divisi
