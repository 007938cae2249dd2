#include "divisi/sim/sim_worker.h"

#include <utility>
#include <variant>

#include "divisi/sim/sim_client.h"
#include "divisi/sim/sim_weather.h"

namespace divisi {

SimWorker::SimWorker(WorkerRole role, SchedulerOptions options,
                     const std::vector<GatewayAddress>& gateways)
    : role_(role), options_(std::move(options)) {
  membership_.Expect(gateways);
}

void SimWorker::BeNew(NodeId id) {
  membership_.BeNew();
  id_ = id;
  worker_ = std::make_unique<Worker>(id, options_, SimTimes(), SimCapacity(options_).page);
  executor_ = std::make_unique<SimExecutor>(
      SimExecutorOptions{.blocks = options_.blocks, .vocab = kSimVocab});
  peers_.clear();
  barred_.clear();
  frames_.clear();
  rejected_ = stepping = false;
}

void SimWorker::Connected(LinkId link) {
  membership_.Connected(link);
  const WorkerCapacity capacity = SimCapacity(options_);
  frames_.push_back(
      {link, HelloMessage{.node = id_,
                          .role = role_,
                          .pages = options_.blocks,
                          .max_sequences = capacity.max_sequences,
                          .step_tokens = capacity.step_tokens,
                          .page_bytes = capacity.page.value,
                          .data_address = "sim",
                          .gateways = static_cast<uint32_t>(membership_.gateways())}});
}

void SimWorker::Frame(LinkId link, ClusterMessage message, Seconds now) {
  membership_.Heard(now);
  if (auto* relay = std::get_if<RelayMessage>(&message)) {
    if (relay->to == id_) worker_->Receive(relay->from, std::move(relay->message), now);
  } else if (const auto* welcome = std::get_if<WelcomeMessage>(&message)) {
    membership_.Welcomed(link, welcome->gateway);
    if (drain_) frames_.push_back({link, LeaveMessage{.drain = *drain_}});
  } else if (const auto* reject = std::get_if<RejectMessage>(&message)) {
    rejected_ = reject->dead;
  } else if (const auto* up = std::get_if<PeerUpMessage>(&message)) {
    if (membership_.PeerUp(link, up->node)) {
      peers_.insert(up->node);
    } else {
      frames_.push_back({link, PeerGoneMessage{up->node}});
    }
  } else if (const auto* lost = std::get_if<PeerGoneMessage>(&message)) {
    membership_.PeerLost(link, lost->node, lost->loss);
  }
}

void SimWorker::Tick(Seconds now) {
  for (const NodeId peer : membership_.TakeGone(now)) {
    peers_.erase(peer);
    barred_.insert(peer);
    worker_->PeerGone(peer, now);
  }
  worker_->Tick(now);
}

void SimWorker::TellAll(const ClusterMessage& message) {
  for (const LinkId link : membership_.Joined()) frames_.push_back({link, message});
}

void SimWorker::Report() {
  const WorkerStats stats = worker_->stats();
  TellAll(ReportMessage{.prompt_backlog = stats.scheduler.prompt_backlog,
                        .counters = stats.counters,
                        .rates = stats.rates});
}

void SimWorker::Settle() {
  for (Outgoing& outgoing : worker_->TakeMessages()) {
    const NodeId gateway = IdOf(outgoing.message).gateway;
    const auto link = outgoing.to == gateway ? membership_.RouteTo(gateway)
                                             : membership_.RouteVia(gateway, outgoing.to);
    if (!link) continue;
    frames_.push_back({*link, RelayMessage{id_, outgoing.to, std::move(outgoing.message)}});
  }
}

void SimWorker::Leave(Seconds drain) {
  drain_ = drain;
  TellAll(LeaveMessage{.drain = drain});
}

void SimWorker::LeaveNow() { TellAll(LeaveMessage{.now = true}); }

bool SimWorker::Idle() const {
  const WorkerStats stats = worker_->stats();
  return stats.incoming == 0 && stats.outgoing == 0;
}

}  // namespace divisi
