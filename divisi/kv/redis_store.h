// The remote pool in a Redis server, for sites that already run one: values are page objects, as
// nodes of `divisi store` keep them, under "PREFIX<key in hex>". One connection, one thread;
// commands are pipelined. What is kept and for how long is Redis's affair (maxmemory-policy).
//
// Every byte is copied several times on the way: a node of `divisi store` is several times faster
// (bench/RESULTS.md). hiredis of Debian 12 has no TLS: use a private network, or stunnel.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "divisi/core/clock.h"
#include "divisi/kv/remote_pages.h"

namespace divisi {

struct RedisStoreOptions {
  std::string host = "127.0.0.1";
  int port = 6379;
  std::string unix_path;  // Where not empty: instead of host and port.
  std::string user;       // Of Redis 6 and newer; empty: the default one.
  std::string password;
  int database = 0;
  std::string prefix = "divisi:page:1:";
  Bytes most_under_way{int64_t{64} << 20};
  Seconds step{3};   // To connect.
  Seconds grace{2};  // A server that is later than this behind a deadline is connected to anew.
  Seconds first_backoff{0.1};
  Seconds most_backoff{5};
  std::function<void()> wake = [] {};  // From its thread, when Poll has something.
};

// The clock outlives the result. Gets may go to any memory. Whether the server can be reached,
// health() says.
std::unique_ptr<RemotePages> MakeRedisStore(RedisStoreOptions options, const Clock& clock);

}  // namespace divisi
