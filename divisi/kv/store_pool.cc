#include "divisi/kv/store_pool.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "divisi/core/check.h"
#include "divisi/kv/page_object.h"

namespace divisi {
namespace {

using Kind = StoreCall::Kind;

// Calls past their time are looked for this often.
constexpr Seconds kCheckEvery{0.002};

// Source: splitmix64, Steele et al. 2014.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// What cannot be an object gets a sum that its node finds wrong.
uint64_t SumOf(std::span<const std::byte> object) {
  return object.size() < kPageHeadBytes ? 0 : PageHeadSum(object.first(kPageHeadBytes));
}

}  // namespace

uint64_t StoreNodeSeed(std::string_view name) {
  uint64_t seed = 0xcbf29ce484222325;  // FNV-1a
  for (const unsigned char c : name) seed = (seed ^ c) * 0x100000001b3;
  return Mix(seed);
}

std::vector<size_t> StoreNodesOf(const BlockKey& key, std::span<const uint64_t> seeds,
                                 size_t copies) {
  // Keys of one chain are hashes: any eight bytes do.
  const uint64_t bits = BlockKeyHash()(key);
  std::vector<std::pair<uint64_t, size_t>> scores;
  for (size_t i = 0; i < seeds.size(); ++i) scores.emplace_back(Mix(bits ^ seeds[i]), i);
  copies = std::min(copies, scores.size());
  std::partial_sort(scores.begin(), scores.begin() + static_cast<std::ptrdiff_t>(copies),
                    scores.end(), std::greater<>());
  std::vector<size_t> nodes;
  for (size_t i = 0; i < copies; ++i) nodes.push_back(scores[i].second);
  return nodes;
}

StorePool::StorePool(const StorePoolOptions& options, Transport& transport,
                     std::span<std::byte> memory, const RegionDescriptor& region)
    : options_(options),
      transport_(transport),
      memory_(memory),
      region_(region),
      names_(options.nodes) {
  for (const std::string& node : names_) {
    seeds_.push_back(StoreNodeSeed(node));
    links_.push_back(MakeLink(node));
  }
}

std::unique_ptr<StoreLink> StorePool::MakeLink(const std::string& node) {
  return std::make_unique<StoreLink>(options_.link, transport_, region_,
                                     options_.seed ^ StoreNodeSeed(node));
}

std::optional<size_t> StorePool::NodeFor(const std::string& name) {
  CHECK(options_.directed);
  const auto found = std::ranges::find(names_, name);
  if (found != names_.end()) return static_cast<size_t>(found - names_.begin());
  if (names_.size() < kMostDirected) {
    names_.push_back(name);
    links_.push_back(MakeLink(name));
    return names_.size() - 1;
  }
  const auto idle = std::ranges::find_if(links_, [](const auto& link) { return link->idle(); });
  if (idle == links_.end()) return std::nullopt;
  const auto index = static_cast<size_t>(idle - links_.begin());
  *idle = MakeLink(name);
  names_[index] = name;
  return index;
}

// ---- Beginning

void StorePool::Begin(Call call, Seconds now) {
  const uint64_t number = call.number;
  Open& open = open_[number];
  open.call = std::move(call);
  open.done.call = number;
  const Call& c = open.call;
  if (options_.directed && (c.kind != Kind::kGet || !c.node)) {
    open.done.error = Error{Code::kUnavailable, "no other worker is named that has it"};
    return Tell(open, now);
  }
  switch (c.kind) {
    case Kind::kGet:
      CHECK(c.to.data() >= memory_.data() &&
            c.to.data() + c.to.size() <= memory_.data() + memory_.size());
      open.nodes = c.node ? std::vector{*c.node} : StoreNodesOf(c.keys[0], seeds_, options_.copies);
      return BeginGet(open, now);
    case Kind::kPut:
      for (const size_t node : StoreNodesOf(c.keys[0], seeds_, options_.copies)) {
        BeginPart(open, node, {number, {}}, c.deadline);
      }
      break;
    case Kind::kHas:
      BeginHas(open);
      break;
    case Kind::kRemove:
    case Kind::kClear:
      for (size_t node = 0; node < links_.size(); ++node) {
        BeginPart(open, node, {number, {}}, c.deadline);
      }
      break;
  }
  Tell(open, now);
}

// Asks the next node that can be asked. Where another is left, this one has half of the time.
void StorePool::BeginGet(Open& open, Seconds now) {
  while (!open.nodes.empty() && open.unended == 0) {
    const size_t node = open.nodes.front();
    open.nodes.erase(open.nodes.begin());
    const Seconds left = open.call.deadline - now;
    BeginPart(open, node, {open.call.number, {}},
              open.nodes.empty() ? open.call.deadline : now + left * 0.5);
  }
  Tell(open, now);
}

void StorePool::BeginHas(Open& open) {
  const auto& keys = open.call.keys;
  CHECK(keys.size() <= kMaxStoreKeys);
  open.done.have.assign(keys.size(), false);
  std::vector<Part> parts(links_.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    for (const size_t node : StoreNodesOf(keys[i], seeds_, options_.copies)) {
      parts[node].places.push_back(i);
    }
  }
  if (keys.empty()) open.any = true;
  for (size_t node = 0; node < parts.size(); ++node) {
    if (parts[node].places.empty()) continue;
    parts[node].call = open.call.number;
    BeginPart(open, node, std::move(parts[node]), open.call.deadline);
  }
}

void StorePool::BeginPart(Open& open, size_t node, Part part, Seconds deadline) {
  if (!Usable(node)) {
    const RemoteHealth health = links_[node]->health();
    open.done.error = Error{Code::kUnavailable, names_[node] + " does not serve: " + health.reason};
    return;
  }
  const Call& call = open.call;
  StoreCall own{
      .kind = call.kind, .number = ++last_part_, .object = call.object, .deadline = deadline};
  if (call.kind == Kind::kGet) {
    own.offset = Bytes(call.to.data() - memory_.data());
    own.room = Bytes(static_cast<int64_t>(call.to.size()));
    own.skip = call.skip;
  }
  if (call.kind == Kind::kPut) {
    own.sum = SumOf(call.object);
    if (const auto head = ReadPageHead(call.object)) own.parent = head->header.parent;
  }
  if (part.places.empty()) {
    own.keys = call.keys;
  } else {
    for (const size_t place : part.places) own.keys.push_back(call.keys[place]);
  }
  parts_.emplace(own.number, std::move(part));
  ++open.unended;
  ++open.unreleased;
  links_[node]->Begin(std::move(own));
}

// ---- Ending

void StorePool::Take(const RemoteDone& done, Seconds now) {
  const auto part = parts_.find(done.call);
  if (part == parts_.end()) return;
  Open& open = open_.at(part->second.call);
  if (done.ended) {
    --open.unended;
    Merge(open, part->second, done);
  }
  if (done.released) {
    --open.unreleased;
    parts_.erase(part);
  }
  const bool next = open.call.kind == Kind::kGet && !open.any && open.unreleased == 0 &&
                    !open.told && now < open.call.deadline;
  next ? BeginGet(open, now) : Tell(open, now);
}

void StorePool::Merge(Open& open, const Part& part, const RemoteDone& done) const {
  if (done.error) {
    // That one node has no such object says less than why another could not tell.
    const bool newer = !open.done.error || open.done.error->code == Code::kNotFound;
    if (newer) open.done.error = done.error;
    open.missed = open.missed || done.error->code == Code::kNotFound;
    return;
  }
  open.any = true;
  open.done.count += done.count;
  if (open.call.kind == Kind::kGet) {
    open.done.length = done.length;
    open.done.copy_lost = open.missed;
  }
  for (size_t i = 0; i < part.places.size() && i < done.have.size(); ++i) {
    if (done.have[i]) open.done.have[part.places[i]] = true;
  }
}

void StorePool::Tell(Open& open, Seconds now) {
  const uint64_t number = open.call.number;
  const bool over = now >= open.call.deadline;
  const bool retries = open.call.kind == Kind::kGet && !open.any && !over &&
                       (!open.nodes.empty() || open.unreleased > 0);
  if (!open.told && ((open.unended == 0 && !retries) || over)) {
    // All nodes must have cleared or removed; one that has it is enough for the others.
    const bool all = open.call.kind == Kind::kRemove || open.call.kind == Kind::kClear;
    if (open.any && !all) open.done.error.reset();
    if (!open.any && !open.done.error) {
      open.done.error = Error{Code::kDeadlineExceeded, "the remote pool did not answer in time"};
    }
    open.done.released = open.unreleased == 0;
    open.told = true;
    done_.push_back(open.done);
    if (!open.done.released) return;
  }
  if (!open.told || open.unreleased > 0) return;
  if (!open.done.released) {
    done_.push_back({.call = number, .ended = false, .released = true});
  }
  open_.erase(number);
}

void StorePool::CheckTime(Seconds now) {
  check_at_ = now + kCheckEvery;
  std::vector<uint64_t> over;
  for (const auto& [number, open] : open_) {
    if (!open.told && now >= open.call.deadline) over.push_back(number);
  }
  for (const uint64_t number : over) Tell(open_.at(number), now);
}

// ---- Moving

void StorePool::Dialed(size_t node, Result<void> result, Seconds now) {
  links_[node]->Dialed(std::move(result), now);
}
void StorePool::Receive(size_t node, std::span<const std::byte> frame, Seconds now) {
  links_[node]->Receive(frame, now);
}
void StorePool::HungUp(size_t node, const std::string& why, Seconds now) {
  links_[node]->HungUp(why, now);
}

bool StorePool::Step(Seconds now) {
  const auto handle = [&](const TransportEvent& event) {
    (void)std::ranges::any_of(links_, [&](auto& link) { return link->Handle(event, now); });
  };
  const auto first = transport_.Next();
  if (first) handle(*first);
  while (transport_.pending()) handle(*transport_.Next());
  for (const auto& link : links_) link->Step(now);
  // What ends may begin another node's call.
  for (const auto& link : links_) {
    for (const RemoteDone& done : link->TakeDone()) Take(done, now);
  }
  if (now >= check_at_) CheckTime(now);
  for (const auto& link : links_) link->Step(now);
  return first.has_value();
}

std::vector<StorePool::Output> StorePool::TakeOutputs() {
  std::vector<Output> outputs;
  for (size_t node = 0; node < links_.size(); ++node) {
    for (auto& output : links_[node]->TakeOutputs()) outputs.push_back({node, std::move(output)});
  }
  return outputs;
}

std::vector<RemoteDone> StorePool::TakeDone() { return std::exchange(done_, {}); }

std::vector<RemoteHealth> StorePool::health() const {
  std::vector<RemoteHealth> all;
  for (size_t node = 0; node < links_.size(); ++node) {
    all.push_back(links_[node]->health());
    all.back().address = names_[node];
  }
  return all;
}

}  // namespace divisi
