#include "divisi/sim/sim_clients.h"

#include "divisi/control/route_prefix.h"
#include "divisi/core/format.h"

namespace divisi {

void SimClients::Draw(Random& random, size_t slots, bool alike) {
  const int64_t count = random.Between(alike ? 20 : 1, 40);
  for (int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<size_t>(i);
    SimClient asked = SimClient::Draw(random, alike);
    const auto slot = static_cast<size_t>(random.Between(0, static_cast<int64_t>(slots) - 1));
    schedule_.At(asked.arrives(), [this, index] { Submit(index); });
    if (asked.cancels()) schedule_.At(*asked.cancels(), [this, index] { Cancel(index); });
    clients_.push_back({std::move(asked), slot, std::nullopt});
  }
}

void SimClients::Submit(size_t index) {
  Client& client = clients_[index];
  SimGateway* gateway = gateway_at_(client.slot);
  if (gateway == nullptr || client.asked.ended()) return;
  const auto space = gateway->core().PageSpace();
  const auto number = gateway->core().Submit(
      client.asked.request(), schedule_.now(),
      space ? SharedPromptKeys(*space, client.asked.request()) : std::vector<BlockKey>());
  if (!number) {
    ++counters_.refused;
    return client.asked.End();
  }
  client.number = *number;
  by_number_[{client.slot, *number}] = index;
}

void SimClients::Cancel(size_t index) {
  Client& client = clients_[index];
  SimGateway* gateway = gateway_at_(client.slot);
  if (!client.number || client.asked.ended() || gateway == nullptr) return;
  ++counters_.cancelled;
  client.asked.End();
  gateway->core().Cancel(*client.number, schedule_.now());
}

std::string SimClients::Take(size_t slot, const DispatchEvent& event) {
  SimClient& client = clients_[by_number_.at({slot, event.request})].asked;
  if (std::string wrong = client.Take(event); !wrong.empty()) return wrong;
  if (!event.finish) return {};
  const bool failed = event.finish == FinishReason::kError;
  counters_.finished += !failed;
  counters_.failed += failed;
  counters_.failed_mid_stream += failed && client.got_tokens();
  return {};
}

void SimClients::GatewayLost(size_t slot) {
  for (Client& client : clients_) {
    if (client.slot == slot && client.number) client.asked.End();
  }
  std::erase_if(by_number_, [slot](const auto& entry) { return entry.first.first == slot; });
}

std::set<BlockKey> SimClients::Keys(const KeySpace& space) const {
  std::set<BlockKey> keys;
  for (const Client& client : clients_) {
    for (const BlockKey& key : SharedPromptKeys(space, client.asked.request())) keys.insert(key);
  }
  return keys;
}

std::string SimClients::CheckEnd() const {
  for (const auto& [key, index] : by_number_) {
    if (!clients_[index].asked.ended()) return Format("request {} never ends", key.second);
  }
  return {};
}

}  // namespace divisi
