#include "divisi/control/store_server.h"

#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "divisi/core/format.h"
#include "divisi/engine/page_news.h"
#include "divisi/kv/store_node.h"
#include "divisi/net/wake_bell.h"

namespace divisi {
namespace {

// Longest sleep; everything that matters wakes it. Overdue puts are looked for as often.
constexpr Seconds kSleep{0.1};
constexpr Seconds kHeldSleep{0.001};
// Frames that were not looked at yet: a client that sends more is not answered faster.
constexpr size_t kMostUnread = size_t{64} << 20;

struct StoreMemory {
  std::span<std::byte> bytes;
  RegionDescriptor region;
};

class FrameStoreServer final : public StoreServer {
 public:
  FrameStoreServer(std::unique_ptr<Transport> transport, const StoreServerOptions& options,
                   const StoreMemory& memory, const Clock& clock, Logger& logger)
      : transport_(std::move(transport)),
        node_({.self = options.self,
               .report_objects = options.events != nullptr,
               .source = options.source},
              *transport_, memory.bytes, memory.region),
        events_(options.events),
        clock_(clock),
        logger_(logger),
        loop_(std::make_unique<FrameLoop>()) {}

  Result<void> Listen(const StoreServerOptions& options) {
    if (options.tls) RETURN_IF_ERROR(loop_->UseTls(*options.tls));
    ASSIGN_OR_RETURN(port_, loop_->Listen(options.host, options.port, [this](auto connection) {
      Accept(std::move(connection));
    }));
    return {};
  }

  int port() const override { return port_; }

  void Run(const std::atomic<bool>& stop) override {
    while (!stop) {
      bool any = false;
      for (Arrival& arrival : TakeInbox()) {
        Handle(arrival);
        any = true;
      }
      any = node_.Step(clock_.Now()) || any;
      for (StoreNode::Output& output : node_.TakeOutputs(clock_.Now())) Give(output);
      if (events_ != nullptr) TellObjects();
      if (!any) bell_.Sleep(*transport_, node_.holds() ? kHeldSleep : kSleep);
    }
    loop_.reset();
  }

 private:
  // What the loop's thread leaves.
  struct Arrival {
    StoreNode::Session session = 0;
    std::shared_ptr<FrameConnection> connection;  // A new one...
    std::vector<std::byte> frame;                 // ...or what it says...
    std::optional<std::string> end;               // ...or why it ended.
  };

  void Leave(Arrival arrival) {
    const std::lock_guard lock(mutex_);
    unread_ += arrival.frame.size();
    inbox_.push_back(std::move(arrival));
    bell_.Ring();
  }
  std::vector<Arrival> TakeInbox() {
    const std::lock_guard lock(mutex_);
    unread_ = 0;
    return std::exchange(inbox_, {});
  }
  bool IsFull() {
    const std::lock_guard lock(mutex_);
    return unread_ > kMostUnread;
  }

  void Accept(Result<std::shared_ptr<FrameConnection>> accepted) {
    if (!accepted) {
      logger_.Log(LogLevel::kWarning, "client refused", {{"reason", accepted.error().message}});
      return;
    }
    const auto session = ++last_session_;
    FrameConnection& connection = **accepted;
    Leave({.session = session, .connection = std::move(*accepted)});
    connection.Start(
        [this, session, &connection](std::vector<std::byte> frame) {
          if (IsFull()) return connection.Close("it sends faster than this node can look");
          Leave({.session = session, .frame = std::move(frame)});
        },
        [this, session](const std::string& why) { Leave({.session = session, .end = why}); });
  }

  void Handle(Arrival& arrival) {
    const Seconds now = clock_.Now();
    if (arrival.connection) {
      connections_[arrival.session] = std::move(arrival.connection);
    } else if (arrival.end) {
      Log("client gone", arrival.session, *arrival.end);
      node_.Ended(arrival.session, now);
      connections_.erase(arrival.session);
    } else if (connections_.contains(arrival.session)) {
      node_.Receive(arrival.session, arrival.frame, now);
    }
  }

  void TellObjects() {
    std::vector<TierEvent> changes;
    for (const StoreSpace::Change& change : node_.TakeChanges()) {
      using Kind = TierEvent::Kind;
      changes.push_back({.kind = change.visible ? Kind::kStored : Kind::kRemoved,
                         .page = {.key = change.key},
                         .tier = Tier::kRemote});
    }
    news_.Take(changes);
    auto events = news_.Next(events_->Room());
    if (!events.empty()) events_->Publish(std::move(events));
  }

  void Give(StoreNode::Output& output) {
    const auto connection = connections_.find(output.session);
    if (connection == connections_.end()) return;
    if (output.welcome) connection->second->Welcome();
    if (!output.frame.empty()) connection->second->Send(std::move(output.frame));
    if (!output.close) return;
    Log("client ended", output.session, output.why);
    connection->second->Close(output.why);
  }

  void Log(const char* event, StoreNode::Session session, const std::string& why) {
    const auto connection = connections_.find(session);
    if (connection == connections_.end()) return;
    logger_.Log(LogLevel::kInfo, event, {{"client", connection->second->peer()}, {"reason", why}});
  }

  const std::unique_ptr<Transport> transport_;
  StoreNode node_;
  EventPublisher* const events_;
  PageNews news_;
  const Clock& clock_;
  Logger& logger_;
  const WakeBell bell_;
  int port_ = 0;

  std::mutex mutex_;
  std::vector<Arrival> inbox_;
  size_t unread_ = 0;

  StoreNode::Session last_session_ = 0;  // The loop's thread's own.
  std::map<StoreNode::Session, std::shared_ptr<FrameConnection>> connections_;
  std::unique_ptr<FrameLoop> loop_;  // Last: its thread uses the rest.
};

}  // namespace

Result<std::unique_ptr<StoreServer>> MakeStoreServer(const StoreServerOptions& options,
                                                     std::unique_ptr<Transport> transport,
                                                     std::span<std::byte> memory,
                                                     const Clock& clock, Logger& logger) {
  ASSIGN_OR_RETURN(const RegionDescriptor region, transport->Register(memory));
  auto server = std::make_unique<FrameStoreServer>(std::move(transport), options,
                                                   StoreMemory{memory, region}, clock, logger);
  RETURN_IF_ERROR(server->Listen(options));
  return std::unique_ptr<StoreServer>(std::move(server));
}

}  // namespace divisi
