// From --kv-pool to the remote pool of a process.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "divisi/cli/serve_options.h"
#include "divisi/control/store_client.h"
#include "divisi/kv/redis_store.h"
#include "divisi/kv/remote_hub.h"

namespace divisi {

// Nodes of `divisi store`, or a Redis server.
struct PoolPlace {
  std::vector<StoreAddress> stores;
  std::optional<RedisStoreOptions> redis;
};

// Requires: at least one.
// Errors: kInvalidArgument with the option and an example; also for Redis beside anything else.
Result<PoolPlace> ParsePool(const std::vector<std::string>& places);

// Errors: kInvalidArgument for nodes of other machines where --data-listen is this one's loopback.
Result<void> CheckReachable(const PoolPlace& place, const ServeOptions& options);

// None where the options name no pool. memory: where its pages arrive.
// Errors: kInvalidArgument; those of OpenUcxTransport and MakeStoreClient. Each names the option.
// That the pool is not there is none: it is tried again.
Result<std::shared_ptr<RemoteHub>> OpenPool(const ServeOptions& options,
                                            const std::optional<TlsFiles>& tls, Bytes memory);

}  // namespace divisi
