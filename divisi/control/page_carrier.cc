#include "divisi/control/page_carrier.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "divisi/core/clock.h"

namespace divisi {
namespace {

// Longest sleep of the transport's thread; everything that matters wakes it.
constexpr Seconds kSleep{0.1};
// A peer that is removed is looked at this often until its connections have ended.
constexpr Seconds kLook{0.01};
// A peer that fails is connected to again after so long; twice as long each time, up to the second.
constexpr Seconds kFirstAgain{0.01}, kMostAgain{1};

// The transport's thread owns it. Others leave commands and take what is done, under one lock.
class TransportCarrier final : public PageCarrier {
 public:
  TransportCarrier(std::unique_ptr<Transport> transport, RegionDescriptor region,
                   std::span<std::byte> memory, Bytes page, std::function<void()> wake)
      : transport_(std::move(transport)),
        address_(transport_->address()),
        descriptor_(EncodeRegion(region)),
        memory_(memory),
        page_(page),
        wake_(std::move(wake)),
        bell_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        thread_([this] { Loop(); }) {}

  ~TransportCarrier() override {
    Leave([](Commands& commands) { commands.stop = true; });
    thread_.join();
    close(bell_);
  }

  std::string address() const override { return address_; }
  std::vector<std::byte> descriptor() const override {
    const auto* data = reinterpret_cast<const std::byte*>(descriptor_.data());
    return {data, data + descriptor_.size()};
  }

  void AddPeer(NodeId node, const std::string& address,
               std::span<const std::byte> descriptor) override {
    const std::string_view text(reinterpret_cast<const char*>(descriptor.data()),
                                descriptor.size());
    const auto region = DecodeRegion(text);
    if (!region) return;  // Writes to it will fail, and say so to the gateway.
    Leave([&](Commands& commands) { commands.peers.push_back({node, *region, address}); });
  }

  bool RemovePeer(NodeId node) override {
    const std::lock_guard lock(mutex_);
    if (fenced_.contains(node)) return true;
    if (asked_.insert(node).second) {
      commands_.removals.push_back(node);
      Ring();
    }
    return false;
  }

  void Write(const PageWrite& write) override {
    Leave([&](Commands& commands) { commands.writes.push_back(write); });
  }

  std::vector<Done> Poll() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(done_, {});
  }

 private:
  struct Peer {
    NodeId node;
    RegionDescriptor region;
    std::string address;
  };
  // Writes that may still land, and when to connect to their peer again.
  struct Failed {
    std::vector<uint64_t> writes;
    Seconds again, pause = kFirstAgain;
  };
  struct Commands {
    std::vector<Peer> peers;
    std::vector<NodeId> removals;
    std::vector<PageWrite> writes;
    bool stop = false;
  };

  template <typename Fn>
  void Leave(Fn fn) {
    const std::lock_guard lock(mutex_);
    fn(commands_);
    Ring();
  }
  void Ring() const {
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = write(bell_, &one, sizeof one);
  }

  void Loop() {
    while (true) {
      Commands commands;
      {
        const std::lock_guard lock(mutex_);
        commands = std::exchange(commands_, {});
      }
      if (commands.stop) break;
      Carry(commands);
      if (!Take() && transport_->Arm()) Sleep();
    }
    transport_.reset();
  }

  void Carry(Commands& commands) {
    for (Peer& peer : commands.peers) {
      if (!barred_.contains(peer.node)) peers_[peer.node] = std::move(peer);
    }
    for (const PageWrite& write : commands.writes) Begin(write);
    for (const NodeId node : commands.removals) {
      peers_.erase(node);
      barred_.insert(node);
      removing_.insert(node);
      GiveUp(node);  // What may land there concerns nobody any more.
    }
    std::erase_if(removing_, [this](NodeId node) { return Fence(node); });
  }

  bool Fence(NodeId node) {
    if (!transport_->Refuse(node)) return false;
    {
      const std::lock_guard lock(mutex_);
      fenced_.insert(node);
    }
    wake_();
    return true;
  }

  // A connection begins with the first write that needs it.
  void Begin(const PageWrite& write) {
    const auto peer = peers_.find(write.to);
    bool begun = false;
    if (peer != peers_.end()) {
      const auto offset = static_cast<size_t>(write.from_page * page_.value);
      const RemoteWrite remote{.to = write.to,
                               .local = memory_.subspan(offset, static_cast<size_t>(page_.value)),
                               .offset = page_ * int64_t{write.to_page},
                               .token = write.id};
      begun = transport_->Connect(peer->second.region, peer->second.address).ok() &&
              transport_->Write(remote).ok();
    }
    if (!begun) Finish({write.id, false});
  }

  // Whether anything had happened.
  bool Take() {
    const std::vector<TransportEvent> events = transport_->Poll();
    for (const TransportEvent& event : events) {
      switch (event.kind) {
        case TransportEvent::Kind::kWritten:
          // What a removed peer's writes may reach concerns nobody any more.
          if (event.ok || !peers_.contains(event.peer)) {
            Finish({event.token, event.ok});
          } else {
            failed_[event.peer].writes.push_back(event.token);
          }
          break;
        case TransportEvent::Kind::kConnected:  // Nothing of an earlier connection lands any more.
          GiveUp(event.peer);
          break;
        case TransportEvent::Kind::kLost:
          break;
      }
    }
    Reconnect();
    return !events.empty();
  }

  // Peers whose failed writes wait for a fence are connected to again, until they are removed.
  void Reconnect() {
    const Seconds now = clock_.Now();
    for (auto& [node, failed] : failed_) {
      const auto peer = peers_.find(node);
      if (peer == peers_.end() || now < failed.again) continue;
      (void)transport_->Connect(peer->second.region, peer->second.address);
      failed.again = now + failed.pause;
      failed.pause = std::min(kMostAgain, failed.pause * 2);
    }
  }

  void GiveUp(NodeId node) {
    const auto failed = failed_.find(node);
    if (failed == failed_.end()) return;
    for (const uint64_t write : failed->second.writes) Finish({write, false});
    failed_.erase(failed);
  }

  void Finish(Done done) {
    {
      const std::lock_guard lock(mutex_);
      done_.push_back(done);
    }
    wake_();
  }

  void Sleep() {
    Seconds most =
        std::min(removing_.empty() ? kSleep : kLook, transport_->NextTimer().value_or(kSleep));
    const Seconds now = clock_.Now();
    for (const auto& [node, failed] : failed_) most = std::min(most, failed.again - now);
    pollfd fds[] = {{transport_->fd(), POLLIN, 0}, {bell_, POLLIN, 0}};
    (void)poll(fds, 2, static_cast<int>(std::ceil(std::max(0.0, most.value) * 1000)));
    uint64_t rung = 0;
    [[maybe_unused]] const auto taken = read(bell_, &rung, sizeof rung);
  }

  // The transport's thread's own.
  std::unique_ptr<Transport> transport_;
  std::map<NodeId, Peer> peers_;
  std::map<NodeId, Failed> failed_;
  std::set<NodeId> barred_;    // A few bytes for each death that this life hears of
  std::set<NodeId> removing_;  // Of them, those whose writes may still land
  const SteadyClock clock_;

  const std::string address_;
  const std::string descriptor_;
  const std::span<std::byte> memory_;
  const Bytes page_;
  const std::function<void()> wake_;
  const int bell_;  // An eventfd: commands are there

  std::mutex mutex_;
  Commands commands_;
  std::vector<Done> done_;
  std::set<NodeId> asked_, fenced_;  // Of removals

  std::thread thread_;  // Last: it uses the rest.
};

}  // namespace

Result<std::unique_ptr<PageCarrier>> MakePageCarrier(std::unique_ptr<Transport> transport,
                                                     std::span<std::byte> memory, Bytes page,
                                                     std::function<void()> wake) {
  ASSIGN_OR_RETURN(const RegionDescriptor region, transport->Register(memory));
  return std::unique_ptr<PageCarrier>(std::make_unique<TransportCarrier>(
      std::move(transport), region, memory, page, std::move(wake)));
}

}  // namespace divisi
