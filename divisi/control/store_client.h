// The remote pool as a worker's process has it: the StorePool (kv/store_pool.h) with control
// connections, a transport and a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "divisi/control/frame_connection.h"
#include "divisi/core/clock.h"
#include "divisi/kv/remote_pages.h"
#include "divisi/kv/store_message.h"
#include "divisi/net/transport.h"

namespace divisi {

using StoreAddress = std::pair<std::string, int>;  // Host and control port

struct StoreClientOptions {
  NodeId self;  // The transport's.
  std::vector<StoreAddress> nodes;
  size_t copies = 1;  // 2: of each object, on two nodes.
  // No nodes, but other workers' memory (page_export.h): gets alone, of keys that Direct gave a
  // peer, which is connected to while it is asked.
  bool peers = false;
  std::optional<TlsFiles> tls;
  uint64_t seed = 0;                        // Of backoffs.
  Bytes most_under_way{int64_t{64} << 20};  // To and from each node.
  std::function<void()> wake = [] {};       // From its thread, when Poll has something.
};

// memory: where gets' objects go; it and the clock outlive the result.
// Errors: kInvalidArgument for no node (with peers, for any), for one that is named twice, or for
// copies other than 1 and 2; those of Transport::Register and FrameLoop::UseTls.
Result<std::unique_ptr<RemotePages>> MakeStoreClient(StoreClientOptions options,
                                                     std::unique_ptr<Transport> transport,
                                                     std::span<std::byte> memory,
                                                     const Clock& clock);

// What a node says of itself. Errors: kUnavailable where it is not reached, is none, or does not
// answer in time.
Result<StoreCounters> AskStore(const StoreAddress& node, const std::optional<TlsFiles>& tls,
                               Seconds timeout);

}  // namespace divisi
