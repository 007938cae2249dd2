// What the members of a cluster write into its directory (etcd), under the cluster's prefix:
//   gateway/ID          where its control port is; while it lives
//   worker/ID           what it says of itself; while it lives
//   reach/WORKER/ID     the gateway ID has a connection to the worker
//   dead/ID             a worker was declared dead: written once, in a transaction
// ID is 16 hexadecimal digits, of one life of a process.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "divisi/control/cluster_message.h"
#include "divisi/control/membership.h"
#include "divisi/core/result.h"

namespace divisi {

// A life's id as keys, status and operators write it: 16 hex digits.
std::string NodeText(NodeId node);

std::string GatewayKey(NodeId gateway);
std::string WorkerKey(NodeId worker);
std::string DeadKey(NodeId worker);
std::string ReachPrefix(NodeId worker);
std::string ReachKey(NodeId worker, NodeId gateway);

enum class MemberKind { kGateway, kWorker, kDead };
struct MemberKey {
  MemberKind kind = MemberKind::kGateway;
  NodeId node;
};
// Nothing for a key that is another's.
std::optional<MemberKey> ParseMemberKey(std::string_view key);

std::string GatewayRecord(const GatewayAddress& address);
// Errors: kDataLoss.
Result<GatewayAddress> ParseGatewayRecord(const std::string& text);
// For people and other programs: role, name, model, layout, address and capacity.
std::string WorkerRecord(const HelloMessage& hello);

}  // namespace divisi
