// Who is in the cluster, as one gateway sees it: which workers there are, over which connection
// each is reached, and who is lost or gone. A pure state machine: connections are numbers, what
// came over them goes in with its time, and what is to be sent or closed comes out as actions.
//
//   hello --> there --connection ends--> lost --grace--> gone for good
//               ^                          |
//               +---- hello of that life --+
//
// A worker that is gone is told so when it comes back: it may join as a new life.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "divisi/control/cluster_message.h"
#include "divisi/core/units.h"

namespace divisi {

// A connection of this process, by a number that is never used again.
using LinkId = uint64_t;

struct RegistryOptions {
  // What every worker must agree with; absent: with the first that came.
  std::optional<Compatibility> expected;
  // How long a worker whose connection ended has to come back as the same.
  Seconds grace{0.5};
};

// What the registry asks for, in order.
struct SendAction {
  LinkId link = 0;
  ClusterMessage message;
};
struct CloseAction {
  LinkId link = 0;
  std::string why;
};
// The worker takes requests from now on.
struct JoinedAction {
  NodeId node;
  WorkerRole role = WorkerRole::kReplica;
};
// What it had is to be tried elsewhere.
struct GoneAction {
  NodeId node;
};
// For the log.
struct NoteAction {
  const char* event = "";
  std::string worker;
  std::string why;
};
using RegistryAction = std::variant<SendAction, CloseAction, JoinedAction, GoneAction, NoteAction>;

class Registry {
 public:
  struct Member {
    HelloMessage hello;
    ReportMessage report;
    std::optional<LinkId> link;  // None: lost
    Seconds lost_at;
  };

  // self: the gateway's.
  Registry(NodeId self, RegistryOptions options);

  // A connection's first word. Refused, it is told why and closed.
  void Hello(LinkId link, HelloMessage hello, Seconds now);
  void Report(LinkId link, const ReportMessage& report);
  // The connection is no more. Nothing happens for one that said no hello.
  void Ended(LinkId link, const std::string& why, Seconds now);
  void Tick(Seconds now);

  // An operator's wish. Requires: a member.
  void SetRole(NodeId node, WorkerRole role);

  std::optional<NodeId> NodeOf(LinkId link) const;
  std::optional<LinkId> LinkOf(NodeId node) const;
  const std::map<NodeId, Member>& members() const { return members_; }
  // Errors: kNotFound, with the nearest name.
  Result<NodeId> Named(const std::string& name) const;

  std::vector<RegistryAction> TakeActions();

 private:
  void Reject(LinkId link, const std::string& name, const std::string& reason);
  void Remove(NodeId node);
  void Send(LinkId link, ClusterMessage message);
  void SendAll(const ClusterMessage& message, NodeId but);
  void Note(const char* event, const std::string& worker, const std::string& why = "");

  const NodeId self_;
  const RegistryOptions options_;
  std::map<NodeId, Member> members_;
  std::map<LinkId, NodeId> node_of_;
  std::set<NodeId> gone_;  // A few bytes for each death, for this process's life.
  std::optional<Compatibility> expected_;
  Seconds pinged_;
  std::vector<RegistryAction> actions_;
};

}  // namespace divisi
