#include "divisi/cli/pool_setup.h"

#include <charconv>
#include <utility>

#include "divisi/cli/host_port.h"
#include "divisi/core/format.h"
#include "divisi/core/random.h"
#include "divisi/net/socket_address.h"
#include "divisi/net/ucx_transport.h"

namespace divisi {
namespace {

constexpr std::string_view kRedis = "redis://";
constexpr int kRedisPort = 6379;

Error NoRedis(const std::string& place) {
  return {Code::kInvalidArgument,
          Format("--kv-pool {}: expected redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], as in "
                 "redis://127.0.0.1:6379/0",
                 place)};
}

Result<RedisStoreOptions> ParseRedis(const std::string& place) {
  std::string rest = place.substr(kRedis.size());
  RedisStoreOptions redis{.port = kRedisPort};
  if (const size_t slash = rest.rfind('/'); slash != std::string::npos) {
    const char* end = rest.data() + rest.size();
    const auto [stop, error] = std::from_chars(rest.data() + slash + 1, end, redis.database);
    if (error != std::errc() || stop != end || redis.database < 0) return NoRedis(place);
    rest.resize(slash);
  }
  if (const size_t at = rest.rfind('@'); at != std::string::npos) {
    const size_t colon = rest.find(':');
    if (colon > at) return NoRedis(place);
    redis.user = rest.substr(0, colon);
    redis.password = rest.substr(colon + 1, at - colon - 1);
    rest.erase(0, at + 1);
  }
  if (rest.empty()) return NoRedis(place);
  if (rest.find(':') == std::string::npos) {
    redis.host = rest;
    return redis;
  }
  const auto address = ParseHostPort("--kv-pool", rest);
  if (!address) return NoRedis(place);
  redis.host = address->first;
  redis.port = address->second;
  return redis;
}

const std::string& ListenFor(const ServeOptions& options) {
  return options.kv_pool_listen.empty() ? options.data_listen : options.kv_pool_listen;
}

// An address that is one, not a name.
bool IsElsewhere(const std::string& host) {
  const auto address = ParseSocketAddress(Format("{}:1", host));
  return address && !address->IsLoopback();
}

}  // namespace

Result<void> CheckReachable(const PoolPlace& place, const ServeOptions& options) {
  const auto listen = ParseSocketAddress(ListenFor(options));
  if (!listen || !listen->IsLoopback() || !options.data_advertise.empty()) return {};
  for (const auto& [host, port] : place.stores) {
    if (!IsElsewhere(host)) continue;
    return Error{Code::kInvalidArgument,
                 Format("--kv-pool {}:{}: its pages arrive at --data-listen {}, which only this "
                        "machine reaches; give an address of the data network, as in "
                        "--data-listen 10.0.0.2:0",
                        host, port, ListenFor(options))};
  }
  return {};
}

Result<PoolPlace> ParsePool(const std::vector<std::string>& places) {
  PoolPlace pool;
  for (const std::string& place : places) {
    if (!place.starts_with(kRedis)) {
      ASSIGN_OR_RETURN(const auto address, ParseHostPort("--kv-pool", place));
      pool.stores.push_back(address);
      continue;
    }
    if (places.size() > 1) {
      return Error{Code::kInvalidArgument,
                   "--kv-pool: one Redis server alone, or nodes of divisi store"};
    }
    ASSIGN_OR_RETURN(pool.redis, ParseRedis(place));
  }
  return pool;
}

Result<std::shared_ptr<RemoteHub>> OpenPool(const ServeOptions& options,
                                            const std::optional<TlsFiles>& tls, Bytes memory) {
  if (options.kv_pool.empty()) return std::shared_ptr<RemoteHub>();
  ASSIGN_OR_RETURN(const PoolPlace place, ParsePool(options.kv_pool));
  RETURN_IF_ERROR(CheckReachable(place, options));
  using Made = Result<std::unique_ptr<RemotePages>>;
  return RemoteHub::Create(
      memory, [&](std::span<std::byte> to, const Clock& clock, std::function<void()> wake) -> Made {
        if (place.redis) {
          RedisStoreOptions redis = *place.redis;
          redis.wake = std::move(wake);
          return MakeRedisStore(std::move(redis), clock);
        }
        const NodeId self{SystemRandom() | 1};
        auto transport = OpenUcxTransport(
            {.self = self, .listen = ListenFor(options), .advertise = options.data_advertise},
            clock);
        if (!transport)
          return WithContext(transport.error(),
                             "--kv-pool-listen, --data-listen, --data-advertise");
        auto client = MakeStoreClient({.self = self,
                                       .nodes = place.stores,
                                       .copies = options.kv_pool_copies,
                                       .tls = tls,
                                       .seed = SystemRandom(),
                                       .wake = std::move(wake)},
                                      std::move(*transport), to, clock);
        if (!client) return WithContext(client.error(), "--kv-pool");
        return client;
      });
}

}  // namespace divisi
