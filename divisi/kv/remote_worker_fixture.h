// For tests: a worker's store of remote pages over a scripted pool.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "divisi/kv/page_store_fixture.h"
#include "divisi/kv/remote_pages_fixture.h"
#include "divisi/kv/remote_store.h"

namespace divisi {

inline constexpr PageShape kShape{.layers = 3, .layer_bytes = 1024};
inline constexpr int64_t kBuffer = 8192;  // Of one object

inline BlockKey Model() { return NumberedPage(0, kShape).model; }

// Whether it comes to hold within a time that a busy machine keeps, too.
template <typename Holds>
bool Comes(Holds holds) {
  const SteadyClock clock;
  const Seconds until = clock.Now() + Seconds(20);
  while (!holds()) {
    if (clock.Now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

// One worker's end of a pool that others may share.
struct Worker {
  explicit Worker(std::shared_ptr<ScriptedPool> given, int64_t buffers = 8,
                  RemoteStoreOptions options = {})
      : pool(std::move(given)), hub(ScriptedHub(pool, Bytes(buffers * kBuffer))) {
    options.shape = kShape;
    options.model = Model();
    store.emplace(hub, options);
  }
  Result<void> Put(int number) {
    return store->Put(NumberedPage(number, kShape), NumberedPayload(number, kShape));
  }
  // What reading the page gives: nothing, or the reason.
  Result<void> Read(int number) {
    ASSIGN_OR_RETURN(const auto reader, store->Open(NumberedPage(number, kShape).key));
    std::vector<std::byte> got(static_cast<size_t>(kShape.PayloadBytes()));
    RETURN_IF_ERROR(reader->ReadLayers(0, kShape.layers, got));
    EXPECT_EQ(got, NumberedPayload(number, kShape));
    EXPECT_EQ(reader->header(), NumberedPage(number, kShape));
    return {};
  }
  std::optional<Code> CodeOf(int number) {
    const auto read = Read(number);
    return read ? std::nullopt : std::optional(read.error().code);
  }
  // The pool's thread has done what was left to it.
  void Settle() {
    const auto ended = std::make_shared<std::atomic<bool>>(false);
    hub->Has({BlockKey()}, Seconds(5), [ended](const RemoteDone&) { *ended = true; });
    ASSERT_TRUE(Comes([&] { return ended->load(); }));
  }

  std::shared_ptr<ScriptedPool> pool;
  std::shared_ptr<RemoteHub> hub;
  std::optional<RemotePageStore> store;
};

inline BlockKey Key(int number) { return NumberedPage(number, kShape).key; }

}  // namespace divisi
