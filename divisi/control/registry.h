// Who is in the cluster, as one gateway sees it: which workers there are, over which connection
// each is reached, and who is lost or gone. A pure state machine: connections are numbers, what
// came over them goes in with its time, and what is to be sent or closed comes out as actions.
//
//   hello --> there --connection ends--> lost --grace--> away --death--> gone for good
//               ^                          |               |
//               +---- hello of that life --+---------------+
//
// One that is away gets no requests, and what it had is tried elsewhere. Its death, after which
// the pages that it might write are used again, is decided as the cluster is made:
//   - This gateway alone: at once.
//   - Several gateways that know nothing of each other: this one doubts; the worker's peers take it
//     for gone when no gateway of theirs reaches it (Membership). It may come back as the same.
//   - With a directory (etcd): when the worker's lease has ended, and no gateway reaches it, which
//     a transaction makes sure of (BuryAction). While the directory is out of reach: as without.
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
  // The gateway's own, which every worker's are to be; empty: not known here. In all else workers
  // agree with the first that came, while any is there.
  std::string model;
  std::string tokenizer;
  // Prompt plus output that clients are promised: a worker that runs no request as long is refused.
  int64_t context = 0;
  // How long a worker whose connection ended has to come back as the same.
  Seconds grace{0.5};
  // The leases of workers in the directory; absent: there is none. A directory that was out of
  // reach is trusted about who is not there only after so long: whoever lives has its lease again.
  std::optional<Seconds> lease;
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
// It gets no new requests.
struct DrainAction {
  NodeId node;
  Seconds within;
};
// What it had is to be tried elsewhere.
struct LostAction {
  NodeId node;
};
// The directory is to say that this gateway reaches the worker, or no longer.
struct VouchAction {
  NodeId node;
  bool reaches = true;
};
// The directory is to declare it dead, if its lease has ended and no gateway reaches it. Declared
// answers where that comes about; where not, it is asked for again.
struct BuryAction {
  NodeId node;
};
// For the log.
struct NoteAction {
  const char* event = "";
  std::string worker;
  std::string why;
};
using RegistryAction = std::variant<SendAction, CloseAction, JoinedAction, DrainAction, LostAction,
                                    VouchAction, BuryAction, NoteAction>;

class Registry {
 public:
  struct Member {
    HelloMessage hello;
    std::optional<ReportMessage> report;  // The last; none before the first, and while it is lost.
    std::optional<LinkId> link;           // None: lost
    Seconds lost_at;
    bool away = false;
    bool leaving = false;             // Its process ends
    bool doubted = false;             // Its peers were told
    std::optional<Seconds> drain;     // It gets no new requests, and ends what it has within this.
    Seconds bury_at;                  // Not before
    std::optional<WorkerRole> given;  // By an operator
  };

  // self: the gateway's.
  Registry(NodeId self, RegistryOptions options);

  // A connection's first word. Refused, it is told why and closed.
  void Hello(LinkId link, HelloMessage hello);
  void Report(LinkId link, const ReportMessage& report);
  void Leave(LinkId link, const LeaveMessage& leave);
  // A worker says that it has barred `peer` for good.
  void Barred(NodeId peer);
  // The connection is no more. Nothing happens for one that said no hello.
  void Ended(LinkId link, const std::string& why, Seconds now);
  void Tick(Seconds now);

  // The directory: whether it is within reach, with all that it holds told; the leases that it
  // knows; and whose death it has. When it is up, all who are reached are vouched for again.
  void DirectoryUp(Seconds now);
  void DirectoryDown(Seconds now);
  void Leased(NodeId node);
  void LeaseEnded(NodeId node) { leased_.erase(node); }
  void Declared(NodeId node);

  // What an operator made of it; it holds when the worker comes back as the same too, also after it
  // was forgotten: of up to 4096 such lives. Requires: a member.
  void SetRole(NodeId node, WorkerRole role);
  void Drain(NodeId node, Seconds within) { members_.at(node).drain = within; }

  std::optional<NodeId> NodeOf(LinkId link) const;
  std::optional<LinkId> LinkOf(NodeId node) const;
  const std::map<NodeId, Member>& members() const { return members_; }
  // Rises with each hello that was taken and each member that went: while it is the same, members
  // are the same and have said of themselves what they had.
  uint64_t changes() const { return changes_; }
  // What members have in common; of those that were, where there are none.
  const Compatibility& compatibility() const { return expected_; }
  // Declared dead, or left: never a member again.
  bool IsGone(NodeId node) const { return gone_.contains(node); }
  // The worker that an operator means: by its id (NodeText), or by its name, where one that
  // is here goes before those that are lost.
  // Errors: kNotFound, with the nearest name; kInvalidArgument where several of the name are equal,
  // with their ids.
  Result<NodeId> Named(const std::string& name) const;

  std::vector<RegistryAction> TakeActions();

 private:
  void Reject(LinkId link, const std::string& name, RejectMessage reject);
  void Welcome(LinkId link, NodeId node);
  void Present(NodeId node);
  void GoAway(NodeId node, Member& member, Seconds now);
  void Doubt(NodeId node, Member& member);
  // Whether it is to be forgotten.
  bool Judge(NodeId node, Member& member, Seconds now);
  void Forget(NodeId node, Seconds now);
  void Recall(NodeId node, Member& member);
  void Remove(NodeId node, const std::string& why);
  void Send(LinkId link, ClusterMessage message);
  void SendAll(const ClusterMessage& message, NodeId but);
  void Note(const char* event, const std::string& worker, const std::string& why = "");

  // What an operator made of a life that is no member and not gone.
  struct Remembered {
    std::optional<WorkerRole> role;
    std::optional<Seconds> drain;
    Seconds since;
  };

  NodeId self_;
  RegistryOptions options_;
  std::map<NodeId, Member> members_;
  uint64_t changes_ = 0;
  std::map<LinkId, NodeId> node_of_;
  std::map<NodeId, Remembered> forgotten_;
  std::set<NodeId> gone_;  // A few bytes for each death, for this process's life.
  std::set<NodeId> leased_;
  bool directory_up_ = false;
  Seconds directory_since_;  // Up, or down
  Compatibility expected_;   // Of members
  Seconds pinged_;
  std::vector<RegistryAction> actions_;
};

}  // namespace divisi
