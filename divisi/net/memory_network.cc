#include "divisi/net/memory_network.h"

#include <utility>

#include "divisi/net/link_transport.h"
#include "divisi/net/memory_link.h"

namespace divisi {

class MemoryNetwork::State {
 public:
  std::shared_ptr<MemoryFabric> fabric;
  uint64_t opened = 0;
};

MemoryNetwork::MemoryNetwork(const MemoryNetworkOptions& options, const Clock& clock)
    : state_(std::make_unique<State>()) {
  state_->fabric =
      std::make_shared<MemoryFabric>(MemoryFabric{options, clock, Random(options.seed)});
}

MemoryNetwork::~MemoryNetwork() = default;

Result<std::unique_ptr<Transport>> MemoryNetwork::Open(const TransportOptions& options) {
  MemoryFabric& fabric = *state_->fabric;
  if (fabric.listeners.contains(options.listen)) {
    return Error{Code::kUnavailable, Format("{} is taken", options.listen)};
  }
  CHECK(!fabric.nodes.contains(options.self), "two processes of one id");
  const uint64_t seed = fabric.options.seed + ++state_->opened;
  auto link = std::make_unique<MemoryLink>(state_->fabric, options.self, options.listen);
  // All bytes pass the modelled link.
  return MakeLinkTransport(options, fabric.clock,
                           {std::move(link), seed, [](auto&&...) { return false; }});
}

void MemoryNetwork::Kill(NodeId node) {
  const auto found = state_->fabric->nodes.find(node);
  if (found != state_->fabric->nodes.end()) found->second->Die();
}

void MemoryNetwork::Stop(NodeId node, bool stopped) {
  MemoryFabric& fabric = *state_->fabric;
  if (stopped) {
    fabric.stopped.insert(node);
  } else {
    fabric.stopped.erase(node);
  }
}

void MemoryNetwork::Cut(NodeId a, NodeId b, bool cut) {
  for (const auto& pair : {std::pair(a, b), std::pair(b, a)}) {
    if (cut) {
      state_->fabric->cut.insert(pair);
    } else {
      state_->fabric->cut.erase(pair);
    }
  }
}

}  // namespace divisi
