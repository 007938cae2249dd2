// A remote pool within a test: nodes and a client over a MemoryNetwork, and control connections
// that a test delays, cuts and stops; all on one clock that the test moves.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "divisi/core/format.h"
#include "divisi/core/random.h"
#include "divisi/kv/page_object.h"
#include "divisi/kv/store_node.h"
#include "divisi/kv/store_pool.h"
#include "divisi/net/memory_network.h"

namespace divisi {

inline BlockKey StoreKey(int64_t number) {
  BlockKey key;
  for (size_t i = 0; i < key.bytes.size(); ++i) {
    key.bytes[i] = static_cast<uint8_t>((number * 0x9e3779b97f4a7c15 >> (i % 8 * 7)) + number);
  }
  return key;
}

// The object of key `number`: the same bytes whenever it is made.
inline std::vector<std::byte> StoreObject(int64_t number, int64_t layer_bytes = 2048) {
  PageHeader header;
  header.shape.layers = 2;
  header.shape.layer_bytes = layer_bytes;
  header.key = StoreKey(number);
  std::vector<std::byte> payload(static_cast<size_t>(2 * layer_bytes));
  for (size_t i = 0; i < payload.size(); ++i) {
    payload[i] = static_cast<std::byte>(number * 131 + static_cast<int64_t>(i * i % 251));
  }
  return EncodePageObject(header, payload);
}
inline constexpr size_t kStoreObject = 8192;  // Bytes of StoreObject by default.

struct TestPoolOptions {
  size_t nodes = 1;
  size_t copies = 1;
  size_t node_memory = 16 * kStoreObject;
  size_t places = 16;
  MemoryNetworkOptions network;
  Seconds control_delay{100e-6};
  std::span<std::byte> memory;  // Of the client; empty: one of its own.
  std::function<void(const RemoteDone&)> told = [](const RemoteDone&) {};  // Of each end
};

class TestPool {
 public:
  static constexpr NodeId kClient{1000};

  explicit TestPool(const TestPoolOptions& options)
      : options_(options), network_(options.network, clock_), nodes_(options.nodes) {
    for (size_t i = 0; i < nodes_.size(); ++i) Start(i);
    own_memory_.resize(options.memory.empty() ? options.places * kStoreObject : 0);
    memory_ = options.memory.empty() ? std::span(own_memory_) : options.memory;
    OpenClient();
  }

  // A node that comes (back) with empty memory and another id.
  void Start(size_t index) {
    Node& node = nodes_[index];
    node.id = {++last_id_};
    node.memory.assign(options_.node_memory, std::byte{0});
    node.transport = Open(node.id, Format("node-{}", node.id.value));
    const auto region = node.transport->Register(node.memory).value();
    node.store.emplace(StoreNodeOptions{.self = node.id, .put_patience = Seconds(1)},
                       *node.transport, node.memory, region);
    node.stopped = false;
  }
  void Kill(size_t index) {
    Node& node = nodes_[index];
    network_.Stop(node.id, false);
    network_.Kill(node.id);
    node.store.reset();
    node.transport.reset();
    CutControl(index);
  }
  // It neither does anything nor hears.
  void Stop(size_t index, bool stopped) {
    nodes_[index].stopped = stopped;
    network_.Stop(nodes_[index].id, stopped);
  }
  void CutData(size_t index, bool cut) { network_.Cut(kClient, nodes_[index].id, cut); }
  // Both ends learn of it after the delay.
  void CutControl(size_t index) {
    Node& node = nodes_[index];
    if (node.session == 0) return;
    to_pool_.push_back({clock_.Now() + options_.control_delay, index, node.session, {}, true});
    to_node_.push_back({clock_.Now() + options_.control_delay, index, node.session, {}, true});
  }
  // The client dies and comes back as another; nodes learn of it from the network alone.
  void ReplaceClient() {
    network_.Kill(client_id_);
    pool_.reset();
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].session != 0) {
        to_node_.push_back({clock_.Now() + options_.control_delay, i, nodes_[i].session, {}, true});
      }
      nodes_[i].session = 0;
    }
    client_.reset();
    client_id_ = {client_id_.value + 1};
    OpenClient();
  }

  StorePool& pool() { return *pool_; }
  StoreNode& node(size_t index) { return *nodes_[index].store; }
  std::span<std::byte> place(size_t index) {
    return memory_.subspan(index * kStoreObject, kStoreObject);
  }
  Seconds now() const { return clock_.Now(); }

  uint64_t Begin(StorePool::Call call, Seconds deadline) {
    call.number = ++last_call_;
    call.deadline = clock_.Now() + deadline;
    pool_->Begin(call, clock_.Now());
    return call.number;
  }
  uint64_t Get(int64_t number, size_t place_index, Seconds deadline = Seconds(1)) {
    return Begin({.keys = {StoreKey(number)}, .to = place(place_index)}, deadline);
  }
  uint64_t Put(int64_t number, Seconds deadline = Seconds(1)) {
    objects_.try_emplace(number, StoreObject(number));
    return PutBytes(number, objects_.at(number), deadline);
  }
  uint64_t PutBytes(int64_t number, std::span<const std::byte> bytes,
                    Seconds deadline = Seconds(1)) {
    return Begin({.kind = StoreCall::Kind::kPut, .keys = {StoreKey(number)}, .object = bytes},
                 deadline);
  }
  uint64_t Ask(StoreCall::Kind kind, std::vector<BlockKey> keys, Seconds deadline = Seconds(1)) {
    return Begin({.kind = kind, .keys = std::move(keys)}, deadline);
  }

  // One small step of time; what ended is collected.
  void Step() {
    clock_.Advance(Seconds(50e-6));
    Deliver();
    for (size_t i = 0; i < nodes_.size(); ++i) {
      Node& node = nodes_[i];
      if (!node.store || node.stopped) continue;
      node.store->Step(clock_.Now());
      for (StoreNode::Output& output : node.store->TakeOutputs(clock_.Now())) {
        const Seconds at = clock_.Now() + options_.control_delay;
        if (!output.frame.empty()) to_pool_.push_back({at, i, output.session, output.frame, false});
        if (output.close) to_pool_.push_back({at, i, output.session, {}, true});
      }
    }
    pool_->Step(clock_.Now());
    for (StorePool::Output& output : pool_->TakeOutputs()) Carry(output);
    for (RemoteDone& done : pool_->TakeDone()) {
      if (done.ended) ended_[done.call] = done;
      if (done.released) released_[done.call] = clock_.Now();
      options_.told(done);
    }
  }
  void Run(Seconds time) {
    for (const Seconds end = clock_.Now() + time; clock_.Now() < end;) Step();
  }
  // Until it ended; nothing where that takes longer than `most`.
  std::optional<RemoteDone> Wait(uint64_t call, Seconds most = Seconds(10)) {
    for (const Seconds end = clock_.Now() + most; clock_.Now() < end && !Ended(call);) Step();
    return Ended(call) ? std::optional(ended_.at(call)) : std::nullopt;
  }
  bool WaitReleased(uint64_t call, Seconds most = Seconds(10)) {
    for (const Seconds end = clock_.Now() + most; clock_.Now() < end && !Released(call);) Step();
    return Released(call);
  }
  bool Ended(uint64_t call) const { return ended_.contains(call); }
  bool Released(uint64_t call) const { return released_.contains(call); }
  bool Ready() {
    for (int i = 0; i < 200000; ++i, Step()) {
      const auto health = pool_->health();
      if (std::ranges::all_of(health, [](const auto& one) { return one.ready; })) return true;
    }
    return false;
  }
  // Why it failed, or "" where it did not.
  std::string Why(uint64_t call) {
    const auto done = Wait(call);
    return !done ? "it never ended" : done->error ? done->error->message : "";
  }
  std::optional<Code> CodeOf(uint64_t call) {
    const auto done = Wait(call);
    return done && done->error ? std::optional(done->error->code) : std::nullopt;
  }
  bool IsObject(size_t place_index, int64_t number) {
    const auto object = StoreObject(number);
    return std::ranges::equal(place(place_index).first(object.size()), object);
  }

 private:
  struct Node {
    NodeId id;
    std::vector<std::byte> memory;
    std::unique_ptr<Transport> transport;
    std::optional<StoreNode> store;
    bool stopped = false;
    uint64_t session = 0;  // The client's control connection to it
  };
  struct Frame {
    Seconds at;
    size_t node = 0;
    uint64_t session = 0;
    std::vector<std::byte> bytes;
    bool end = false;
  };

  std::unique_ptr<Transport> Open(NodeId id, const std::string& listen) {
    return network_
        .Open({.self = id, .listen = listen, .connect = Seconds(0.05), .silence = Seconds(0.05)})
        .value();
  }

  void OpenClient() {
    client_ = Open(client_id_, Format("client-{}", client_id_.value));
    StorePoolOptions options{.copies = options_.copies, .seed = 5};
    options.link = {.self = client_id_,
                    .step = Seconds(0.2),
                    .grace = Seconds(0.1),
                    .first_backoff = Seconds(0.01),
                    .most_backoff = Seconds(0.1)};
    for (size_t i = 0; i < nodes_.size(); ++i) options.nodes.push_back(Format("10.0.0.{}:9", i));
    pool_.emplace(options, *client_, memory_, client_->Register(memory_).value());
  }

  void Carry(StorePool::Output& output) {
    using Kind = StoreLink::Output::Kind;
    Node& node = nodes_[output.node];
    const Seconds at = clock_.Now() + options_.control_delay;
    switch (output.what.kind) {
      case Kind::kDial:
        node.session = node.store ? ++last_session_ : 0;
        to_pool_.push_back({at, output.node, node.session, {}, !node.store});
        if (node.store) dialed_.insert(node.session);
        break;
      case Kind::kSend:
        to_node_.push_back({at, output.node, node.session, output.what.frame, false});
        break;
      case Kind::kHangUp:
        to_node_.push_back({at, output.node, node.session, {}, true});
        node.session = 0;
        break;
    }
  }

  void Deliver() {
    // A stopped node's frames wait, in their order.
    std::deque<Frame> later;
    for (; !to_node_.empty(); to_node_.pop_front()) {
      Frame& frame = to_node_.front();
      Node& node = nodes_[frame.node];
      if (frame.at > clock_.Now() || node.stopped) {
        later.push_back(std::move(frame));
      } else if (node.store && frame.end) {
        node.store->Ended(frame.session, clock_.Now());
      } else if (node.store) {
        node.store->Receive(frame.session, frame.bytes, clock_.Now());
      }
    }
    to_node_ = std::move(later);
    for (; !to_pool_.empty() && to_pool_.front().at <= clock_.Now(); to_pool_.pop_front()) {
      Frame& frame = to_pool_.front();
      if (frame.session != nodes_[frame.node].session) continue;
      if (frame.end && frame.session == 0) {
        pool_->Dialed(frame.node, Error{Code::kUnavailable, "nobody listens"}, clock_.Now());
      } else if (frame.end) {
        nodes_[frame.node].session = 0;
        pool_->HungUp(frame.node, "the connection was cut", clock_.Now());
      } else if (dialed_.erase(frame.session) > 0) {
        pool_->Dialed(frame.node, {}, clock_.Now());
      } else {
        pool_->Receive(frame.node, frame.bytes, clock_.Now());
      }
    }
  }

  const TestPoolOptions options_;
  ManualClock clock_;
  MemoryNetwork network_;
  std::vector<Node> nodes_;
  uint64_t last_id_ = 0;
  NodeId client_id_ = kClient;
  std::vector<std::byte> own_memory_;
  std::span<std::byte> memory_;
  std::unique_ptr<Transport> client_;
  std::optional<StorePool> pool_;
  std::deque<Frame> to_node_, to_pool_;
  std::set<uint64_t> dialed_;
  uint64_t last_session_ = 0;
  uint64_t last_call_ = 0;
  std::map<int64_t, std::vector<std::byte>> objects_;
  std::map<uint64_t, RemoteDone> ended_;
  std::map<uint64_t, Seconds> released_;
};

}  // namespace divisi
