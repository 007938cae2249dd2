// A node of the remote pool as a process has it: the StoreNode (kv/store_node.h) with control
// connections, a transport and a clock. One thread decides; the connections' loop only leaves
// frames for it.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "divisi/control/frame_connection.h"
#include "divisi/core/clock.h"
#include "divisi/core/log.h"
#include "divisi/kv/event_socket.h"
#include "divisi/kv/store_message.h"
#include "divisi/kv/store_source.h"
#include "divisi/net/transport.h"

namespace divisi {

struct StoreServerOptions {
  NodeId self;  // The transport's.
  std::string host = "127.0.0.1";
  int port = 0;
  std::optional<TlsFiles> tls;
  EventPublisher* events = nullptr;  // Of what it keeps; outlives the server
  StoreSource* source = nullptr;     // As of StoreNodeOptions; outlives the server
};

class StoreServer {
 public:
  virtual ~StoreServer() = default;
  virtual int port() const = 0;
  // Serves until `stop`, which it looks at every tenth of a second. Then its connections end, and
  // what was not published is gone.
  virtual void Run(const std::atomic<bool>& stop) = 0;
};

// memory: where objects are kept. It, clock and logger outlive the result.
// Errors: those of Transport::Register, FrameLoop::UseTls and FrameLoop::Listen.
Result<std::unique_ptr<StoreServer>> MakeStoreServer(const StoreServerOptions& options,
                                                     std::unique_ptr<Transport> transport,
                                                     std::span<std::byte> memory,
                                                     const Clock& clock, Logger& logger);

}  // namespace divisi
