#include "divisi/control/store_client.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "divisi/control/cluster_message.h"
#include "divisi/control/peer_directions.h"
#include "divisi/core/format.h"
#include "divisi/kv/store_pool.h"
#include "divisi/net/wake_bell.h"

namespace divisi {
namespace {

constexpr Seconds kDial{3};
// Longest sleep, without and with calls under way: their deadlines count in milliseconds.
constexpr Seconds kSleep{0.1};
constexpr Seconds kSleepWithCalls{0.002};
constexpr Seconds kHealthEvery{0.01};  // Where no call ends.

std::string Name(const StoreAddress& address) {
  return Format("{}:{}", address.first, address.second);
}

// A session with a peer that is not asked ends after this.
constexpr Seconds kPeerIdle{60};
// Keys whose peer is remembered: those of a hundred long prompts.
constexpr size_t kMostDirections = size_t{1} << 17;

// HOST:PORT; of a port that is none, 0.
StoreAddress AddressOf(const std::string& peer) {
  const size_t colon = peer.rfind(':');
  StoreAddress address{peer.substr(0, colon), 0};
  if (colon == std::string::npos) return address;
  const char* const end = peer.data() + peer.size();
  const auto [stop, error] = std::from_chars(peer.data() + colon + 1, end, address.second);
  if (error != std::errc() || stop != end) address.second = 0;
  return address;
}

// What a port says that is not a store's, or wants TLS (frame_connection.h).
std::string WhyNotAStore(std::span<const std::byte> frame) {
  const auto message = DecodeClusterMessage(frame);
  const auto* reject = message ? std::get_if<RejectMessage>(&*message) : nullptr;
  return reject != nullptr ? reject->reason : "what listens there is no node of `divisi store`";
}

class FrameStoreClient final : public RemotePages {
 public:
  FrameStoreClient(StoreClientOptions options, std::unique_ptr<Transport> transport,
                   std::span<std::byte> memory, const RegionDescriptor& region, const Clock& clock)
      : options_(std::move(options)),
        clock_(clock),
        transport_(std::move(transport)),
        pool_(PoolOptions(options_), *transport_, memory, region),
        addresses_(options_.nodes),
        nodes_(addresses_.size()),
        loop_(std::make_unique<FrameLoop>()) {
    for (const StoreAddress& node : options_.nodes) seeds_.push_back(StoreNodeSeed(Name(node)));
  }

  Result<void> Start() {
    if (options_.tls) RETURN_IF_ERROR(loop_->UseTls(*options_.tls));
    thread_ = std::thread([this] { Loop(); });
    return {};
  }

  ~FrameStoreClient() override {
    Leave([](Inbox& inbox) { inbox.stop = true; });
    if (thread_.joinable()) thread_.join();
    loop_.reset();
  }

  uint64_t Get(const BlockKey& key, std::span<std::byte> to, Seconds deadline) override {
    return Call({.kind = StoreCall::Kind::kGet, .keys = {key}, .to = to}, deadline);
  }
  uint64_t GetPart(const BlockKey& key, Bytes skip, std::span<std::byte> to,
                   Seconds deadline) override {
    return Call({.kind = StoreCall::Kind::kGet, .keys = {key}, .to = to, .skip = skip}, deadline);
  }
  // Other workers copy a whole page to send any of it.
  bool gets_parts() const override { return !options_.peers; }
  uint64_t Put(const BlockKey& key, std::span<const std::byte> object, Seconds deadline) override {
    return Call({.kind = StoreCall::Kind::kPut, .keys = {key}, .object = object}, deadline);
  }
  uint64_t Has(std::vector<BlockKey> keys, Seconds deadline) override {
    return Call({.kind = StoreCall::Kind::kHas, .keys = std::move(keys)}, deadline);
  }
  uint64_t Remove(std::vector<BlockKey> keys, Seconds deadline) override {
    return Call({.kind = StoreCall::Kind::kRemove, .keys = std::move(keys)}, deadline);
  }
  uint64_t Clear(Seconds deadline) override {
    return Call({.kind = StoreCall::Kind::kClear}, deadline);
  }
  void Direct(std::span<const BlockKey> keys, const std::string& peer) override {
    const std::lock_guard lock(mutex_);
    directions_.Set(keys, AddressOf(peer));
  }
  std::optional<uint64_t> TargetOf(const BlockKey& key) const override {
    if (seeds_.size() == 1) return std::nullopt;
    if (!options_.peers) return StoreNodesOf(key, seeds_, 1)[0];
    const std::lock_guard lock(mutex_);
    const auto peer = directions_.Of(key);
    return peer ? StoreNodeSeed(Name(*peer)) : 0;
  }
  std::vector<RemoteDone> Poll() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(done_, {});
  }
  std::vector<RemoteHealth> health() const override {
    const std::lock_guard lock(mutex_);
    return health_;
  }

 private:
  // What a connection's loop leaves.
  struct Heard {
    size_t node = 0;
    uint64_t life = 0;
    std::optional<Result<std::shared_ptr<FrameConnection>>> connection;
    std::vector<std::byte> frame;
    std::optional<std::string> end;
  };
  struct NewCall {
    StorePool::Call call;
    std::optional<StoreAddress> peer;
  };
  struct Inbox {
    std::vector<NewCall> calls;
    std::vector<Heard> heard;
    bool stop = false;
  };
  struct Node {
    uint64_t life = 0;  // Counts its connections: what an earlier one says is not heard.
    std::shared_ptr<FrameConnection> connection;
    bool spoke = false;
  };

  static StorePoolOptions PoolOptions(const StoreClientOptions& options) {
    StorePoolOptions pool{
        .copies = options.copies, .directed = options.peers, .seed = options.seed};
    if (options.peers) pool.link.on_demand = kPeerIdle;
    pool.link.self = options.self;
    pool.link.most_under_way = options.most_under_way;
    for (const StoreAddress& node : options.nodes) pool.nodes.push_back(Name(node));
    return pool;
  }

  template <typename Fn>
  void Leave(Fn fn) {
    const std::lock_guard lock(mutex_);
    fn(inbox_);
    bell_.Ring();
  }

  uint64_t Call(StorePool::Call call, Seconds deadline) {
    call.deadline = clock_.Now() + deadline;
    const std::lock_guard lock(mutex_);
    call.number = ++last_call_;
    auto peer = options_.peers && !call.keys.empty() ? directions_.Of(call.keys[0]) : std::nullopt;
    inbox_.calls.push_back({std::move(call), std::move(peer)});
    bell_.Ring();
    return last_call_;
  }

  void Loop() {
    while (true) {
      Inbox inbox;
      {
        const std::lock_guard lock(mutex_);
        inbox = std::exchange(inbox_, {});
      }
      if (inbox.stop) break;
      const Seconds now = clock_.Now();
      for (Heard& heard : inbox.heard) Hear(heard, now);
      for (NewCall& made : inbox.calls) {
        ++open_;
        if (made.peer) made.call.node = NodeFor(*made.peer);
        pool_.Begin(std::move(made.call), now);
      }
      const bool any = pool_.Step(now);
      for (StorePool::Output& output : pool_.TakeOutputs()) Give(output);
      Tell(now);
      if (!any && inbox.heard.empty() && inbox.calls.empty()) {
        bell_.Sleep(*transport_, open_ > 0 ? kSleepWithCalls : kSleep);
      }
    }
    for (const Node& node : nodes_) {
      if (node.connection) node.connection->Close("this process ends");
    }
    transport_.reset();  // Nothing lands any more.
  }

  std::optional<size_t> NodeFor(const StoreAddress& peer) {
    const auto node = pool_.NodeFor(Name(peer));
    if (!node) return node;
    const size_t count = std::max(nodes_.size(), *node + 1);
    nodes_.resize(count);
    addresses_.resize(count);
    addresses_[*node] = peer;
    return node;
  }

  void Tell(Seconds now) {
    std::vector<RemoteDone> done = pool_.TakeDone();
    if (done.empty() && now < health_at_) return;
    health_at_ = now + kHealthEvery;
    for (const RemoteDone& one : done) open_ -= one.released;
    {
      const std::lock_guard lock(mutex_);
      health_ = pool_.health();
      if (done.empty()) return;
      done_.insert(done_.end(), std::make_move_iterator(done.begin()),
                   std::make_move_iterator(done.end()));
    }
    options_.wake();
  }

  void Hear(Heard& heard, Seconds now) {
    Node& node = nodes_[heard.node];
    if (heard.life != node.life) {  // Its dial was given up.
      if (heard.connection && *heard.connection) (**heard.connection)->Close("too late");
      return;
    }
    if (heard.connection) {
      auto& connection = *heard.connection;
      if (!connection) return pool_.Dialed(heard.node, connection.error(), now);
      node.connection = std::move(*connection);
      Listen(heard.node);
      return pool_.Dialed(heard.node, {}, now);
    }
    if (heard.end) {
      node.connection.reset();
      return pool_.HungUp(heard.node, *heard.end, now);
    }
    const bool first = !std::exchange(node.spoke, true);
    if (first && !DecodeStoreFrame(heard.frame) &&
        DecodeStoreFrame(heard.frame).error().code == Code::kDataLoss) {
      return pool_.HungUp(heard.node, WhyNotAStore(heard.frame), now);
    }
    pool_.Receive(heard.node, heard.frame, now);
  }

  void Listen(size_t index) {
    const uint64_t life = nodes_[index].life;
    nodes_[index].connection->Start(
        [this, index, life](std::vector<std::byte> frame) {
          Leave([&](Inbox& inbox) {
            inbox.heard.push_back({.node = index, .life = life, .frame = std::move(frame)});
          });
        },
        [this, index, life](const std::string& why) {
          Leave([&](Inbox& inbox) {
            inbox.heard.push_back({.node = index, .life = life, .end = why});
          });
        });
  }

  void Give(StorePool::Output& output) {
    Node& node = nodes_[output.node];
    switch (output.what.kind) {
      case StoreLink::Output::Kind::kDial:
        Dial(output.node);
        break;
      case StoreLink::Output::Kind::kSend:
        if (node.connection) node.connection->Send(std::move(output.what.frame));
        break;
      case StoreLink::Output::Kind::kHangUp:
        if (node.connection) node.connection->Close("the client ends the session");
        node.connection.reset();
        ++node.life;
        break;
    }
  }

  void Dial(size_t index) {
    const uint64_t life = ++nodes_[index].life;
    nodes_[index].spoke = false;
    const auto& [host, port] = addresses_[index];
    loop_->Connect(host, port, kDial, [this, index, life](auto connection) {
      Leave([&](Inbox& inbox) {
        inbox.heard.push_back({.node = index, .life = life, .connection = std::move(connection)});
      });
    });
  }

  const StoreClientOptions options_;
  const Clock& clock_;
  std::vector<uint64_t> seeds_;  // Of the nodes; since the start
  // The thread's own.
  std::unique_ptr<Transport> transport_;
  StorePool pool_;
  std::vector<StoreAddress> addresses_;
  std::vector<Node> nodes_;
  int64_t open_ = 0;
  Seconds health_at_;

  const WakeBell bell_;
  mutable std::mutex mutex_;
  Inbox inbox_;
  std::vector<RemoteDone> done_;
  std::vector<RemoteHealth> health_;
  uint64_t last_call_ = 0;
  PeerDirections directions_{kMostDirections};

  std::unique_ptr<FrameLoop> loop_;  // Its thread uses what is above.
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<RemotePages>> MakeStoreClient(StoreClientOptions options,
                                                     std::unique_ptr<Transport> transport,
                                                     std::span<std::byte> memory,
                                                     const Clock& clock) {
  const std::set<StoreAddress> different(options.nodes.begin(), options.nodes.end());
  if (options.nodes.empty() == !options.peers || different.size() != options.nodes.size()) {
    return Error{Code::kInvalidArgument,
                 "a remote pool needs one or more nodes, each named once: HOST:PORT"};
  }
  if (options.copies < 1 || options.copies > 2) {
    return Error{Code::kInvalidArgument,
                 Format("{} copies of each object; 1 or 2 are possible", options.copies)};
  }
  ASSIGN_OR_RETURN(const RegionDescriptor region, transport->Register(memory));
  auto client = std::make_unique<FrameStoreClient>(std::move(options), std::move(transport), memory,
                                                   region, clock);
  RETURN_IF_ERROR(client->Start());
  return std::unique_ptr<RemotePages>(std::move(client));
}

Result<StoreCounters> AskStore(const StoreAddress& node, const std::optional<TlsFiles>& tls,
                               Seconds timeout) {
  std::mutex mutex;
  std::condition_variable told;
  std::optional<Result<StoreCounters>> answer;
  const auto tell = [&](Result<StoreCounters> given) {
    const std::lock_guard lock(mutex);
    if (!answer) answer = std::move(given);
    told.notify_one();
  };
  const auto hear = [&](std::span<const std::byte> frame) {
    const auto messages = DecodeStoreFrame(frame);
    if (!messages) return tell(Error{Code::kUnavailable, WhyNotAStore(frame)});
    const auto* counters = std::get_if<StoreCounters>(&messages->front());
    if (counters != nullptr) tell(*counters);
  };
  FrameLoop loop;  // Last: its thread uses the rest.
  if (tls) RETURN_IF_ERROR(loop.UseTls(*tls));
  loop.Connect(node.first, node.second, timeout, [&](auto connection) {
    if (!connection) return tell(connection.error());
    (*connection)
        ->Start([&](std::vector<std::byte> frame) { hear(frame); },
                [&](const std::string& why) {
                  tell(Error{Code::kUnavailable, Format("{} gave no answer: {}", Name(node), why)});
                });
    const std::vector<StoreMessage> query{StoreQuery{}};
    (*connection)->Send(EncodeStoreFrame(query));
  });
  std::unique_lock lock(mutex);
  told.wait_for(lock, std::chrono::duration<double>(timeout.value * 2),
                [&] { return answer.has_value(); });
  if (answer) return *answer;
  return Error{Code::kUnavailable, Name(node) + " gave no answer"};
}

}  // namespace divisi
