// All clients of a simulated cluster: they submit to gateways, cancel, and check what they get.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "divisi/core/random.h"
#include "divisi/sim/sim_client.h"
#include "divisi/sim/sim_gateway.h"
#include "divisi/sim/sim_schedule.h"

namespace divisi {

class SimClients {
 public:
  struct Counters {
    int64_t finished = 0, failed = 0, failed_mid_stream = 0, refused = 0, cancelled = 0;
  };
  // The gateway at a slot; null while there is none.
  using GatewayAt = std::function<SimGateway*(size_t slot)>;

  // schedule outlives this.
  SimClients(SimSchedule& schedule, GatewayAt gateway_at)
      : schedule_(schedule), gateway_at_(std::move(gateway_at)) {}

  // Each asks the gateway at one of `slots`. alike: as SimClient::Draw has it.
  void Draw(Random& random, size_t slots, bool alike);
  // What is wrong with the event; empty: nothing.
  std::string Take(size_t slot, const DispatchEvent& event);
  // Connections to that gateway are gone, and so are its requests.
  void GatewayLost(size_t slot);
  // What is wrong once everything should have ended; empty: nothing.
  std::string CheckEnd() const;
  const Counters& counters() const { return counters_; }
  // Of the pages of all prompts.
  std::set<BlockKey> Keys(const KeySpace& space) const;

 private:
  struct Client {
    SimClient asked;
    size_t slot = 0;
    std::optional<uint64_t> number;  // Once submitted
  };

  void Submit(size_t index);
  void Cancel(size_t index);

  SimSchedule& schedule_;
  const GatewayAt gateway_at_;
  std::vector<Client> clients_;
  std::map<std::pair<size_t, uint64_t>, size_t> by_number_;  // Of the gateway now at each slot
  Counters counters_;
};

}  // namespace divisi
