#include "divisi/sim/sim_flows.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "divisi/core/check.h"

namespace divisi {
namespace {

// Sums of fractions drift: what is left for less than this is there.
constexpr double kRounding = 1e-9;  // Seconds

}  // namespace

SimFlows::Link SimFlows::AddLink(BytesPerSecond rate) {
  CHECK(rate.value > 0, "a link of {} bytes/s", rate.value);
  links_.push_back({.rate = rate.value});
  return links_.size() - 1;
}

SimFlows::Flow SimFlows::Start(Bytes bytes, std::vector<Link> path, std::function<void()> done) {
  CHECK(!path.empty(), "a transfer without a path");
  Advance();
  const Flow flow = ++last_;
  flows_[flow] = {
      .left = static_cast<double>(bytes.value), .path = std::move(path), .done = std::move(done)};
  Changed();
  return flow;
}

Bytes SimFlows::Cancel(Flow flow) {
  Advance();
  const auto found = flows_.find(flow);
  if (found == flows_.end()) return Bytes(0);
  const Bytes left(static_cast<int64_t>(found->second.left));
  flows_.erase(found);
  Changed();
  return left;
}

// Moves every transfer on to now.
void SimFlows::Advance() {
  const double passed = (schedule_.now() - advanced_).value;
  advanced_ = schedule_.now();
  for (auto& [id, flow] : flows_) {
    const double moved = std::min(flow.rate * passed, flow.left);
    flow.left -= moved;
    for (const Link link : flow.path) links_[link].carried += moved;
  }
}

// The link whose transfers get least; null where all have their share.
SimFlows::Road* SimFlows::Narrowest() {
  Road* narrowest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (Road& link : links_) {
    if (link.unshared == 0 || link.left / link.unshared >= least) continue;
    least = link.left / link.unshared;
    narrowest = &link;
  }
  return narrowest;
}

// The narrowest link's transfers get its rate in equal parts, then the next one's what is left.
void SimFlows::Share() {
  for (Road& link : links_) {
    link.left = link.rate;
    link.unshared = 0;
  }
  for (auto& [id, flow] : flows_) {
    flow.shared = false;
    for (const Link link : flow.path) ++links_[link].unshared;
  }
  while (Road* narrowest = Narrowest()) {
    const double part = std::max(narrowest->left, 0.0) / narrowest->unshared;
    for (auto& [id, flow] : flows_) {
      const bool over =
          std::ranges::any_of(flow.path, [&](Link link) { return &links_[link] == narrowest; });
      if (flow.shared || !over) continue;
      flow.shared = true;
      flow.rate = part;
      for (const Link link : flow.path) {
        links_[link].left -= part;
        --links_[link].unshared;
      }
    }
  }
}

void SimFlows::Changed() {
  Share();
  const uint64_t version = ++version_;
  double first = std::numeric_limits<double>::infinity();
  for (const auto& [id, flow] : flows_) first = std::min(first, flow.left / flow.rate);
  if (flows_.empty()) return;
  schedule_.In(Seconds(first), [this, version] {
    if (version == version_) EndSome();
  });
}

void SimFlows::EndSome() {
  Advance();
  std::vector<std::function<void()>> done;
  for (auto at = flows_.begin(); at != flows_.end();) {
    Transfer& flow = at->second;
    if (flow.left > flow.rate * kRounding) {
      ++at;
      continue;
    }
    done.push_back(std::move(flow.done));
    at = flows_.erase(at);
  }
  Changed();
  for (const std::function<void()>& each : done) each();
}

}  // namespace divisi
