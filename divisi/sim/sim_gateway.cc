#include "divisi/sim/sim_gateway.h"

#include <utility>
#include <variant>

#include "divisi/control/member_keys.h"
#include "divisi/sim/sim_events.h"

namespace divisi {

GatewayAddress SimAddress(size_t slot) { return {"gateway", static_cast<int>(slot) + 1}; }
size_t SimSlot(const GatewayAddress& address) { return static_cast<size_t>(address.port) - 1; }

SimGateway::SimGateway(NodeId id, size_t slot, GatewayCoreOptions options, const SimWorld& world)
    : world_(world), slot_(slot), core_(id, std::move(options)) {
  if (world_.directory == nullptr) return;
  client_ = world_.directory->Join(
      "", [this](const DirectoryEvent& event) { core_.Told(event, world_.schedule.now()); });
  world_.directory->Do(client_, KeepAction{GatewayKey(id), GatewayRecord(SimAddress(slot))});
}

SimGateway::~SimGateway() {
  if (world_.events != nullptr) world_.events->GatewayGone(slot_);
  if (world_.directory != nullptr) world_.directory->Lost(client_);
}

void SimGateway::Settle() {
  for (GatewayAction& action : core_.TakeActions()) {
    std::visit([this](auto& each) { Do(each); }, action);
  }
}

void SimGateway::Do(const FollowAction& action) {
  if (world_.events != nullptr) world_.events->Follow(slot_, action.node);
}
void SimGateway::Do(const UnfollowAction& action) {
  if (world_.events != nullptr) world_.events->Unfollow(slot_, action.node);
}

void SimGateway::Do(const DirectoryAction& action) {
  if (world_.directory != nullptr) world_.directory->Do(client_, action);
}

}  // namespace divisi
