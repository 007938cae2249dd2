// Pages that are put into the remote pool.
#include <algorithm>
#include <chrono>
#include <utility>

#include "divisi/core/format.h"
#include "divisi/kv/remote_store_state.h"

namespace divisi {

void RemotePageStore::BeginPut(const PageHeader& header, std::span<const std::byte> payload,
                               PutDone done) {
  if (header.shape != options_.shape || header.model != options_.model) {
    return done(Error{Code::kInvalidArgument,
                      Format("remote pool: page {} has another shape or model", header.key.Hex())});
  }
  const uint64_t target = hub_->TargetOf(header.key).value_or(0);
  if (auto admitted = AdmitPut(header.key, target); !admitted) return done(std::move(admitted));
  const auto object =
      std::make_shared<const std::vector<std::byte>>(EncodePageObject(header, payload));
  // Holds the object until the pool has let go of it.
  const State::PutCall call{header.key, target, Bytes(static_cast<int64_t>(object->size()))};
  hub_->Put(header.key, *object, options_.put,
            [state = state_, object, call, done = std::move(done),
             clock = &hub_->clock()](const RemoteDone& end) {
              const auto put = state->PutEnded(call, end, clock->Now());
              if (end.ended) done(put);
            });
}

Result<void> RemotePageStore::Put(const PageHeader& header, std::span<const std::byte> payload) {
  struct Call {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Result<void>> end;
  };
  const auto call = std::make_shared<Call>();
  BeginPut(header, payload, [call](Result<void> end) {
    const std::lock_guard lock(call->mutex);
    call->end = std::move(end);
    call->changed.notify_one();
  });
  std::unique_lock lock(call->mutex);
  call->changed.wait_for(lock, std::chrono::duration<double>((options_.put + kRemoteSlack).value),
                         [&] { return call->end.has_value(); });
  if (call->end) return *call->end;
  return Error{Code::kDeadlineExceeded, "remote pool: it did not answer in time"};
}

// Of one node's puts half may be open at most, so that one that is late leaves others their share;
// and one, until it ends well, after some that failed: the others are paused meanwhile.
PutTurn RemotePageStore::TurnOf(const BlockKey& key) const {
  const auto target = hub_->TargetOf(key);
  const std::lock_guard lock(state_->mutex);
  const State& s = *state_;
  const uint64_t number = target.value_or(0);
  if (s.targets.PutsPause(number, hub_->clock().Now())) return PutTurn::kPaused;
  if (s.targets.PutsFail(number) && s.targets.PutsOpen(number) > 0) return PutTurn::kPaused;
  const size_t most = target ? std::max<size_t>(options_.most_puts / 2, 1) : options_.most_puts;
  const bool full = s.puts_open >= options_.most_puts || s.targets.PutsOpen(number) >= most;
  return full ? PutTurn::kLater : PutTurn::kNow;
}

// Counts a put as begun.
Result<void> RemotePageStore::AdmitPut(const BlockKey& key, uint64_t target) {
  const std::lock_guard lock(state_->mutex);
  State& s = *state_;
  if (s.bad.Bars(PageAt(key, target), Tier::kRemote)) {
    return Error{Code::kUnavailable,
                 Format("remote pool: page {} never comes out whole", key.Hex())};
  }
  const bool full = s.puts_open >= options_.most_puts;
  const Seconds now = hub_->clock().Now();
  if (full || s.targets.PutsPause(target, now)) {
    ++s.stats.skipped;
    return Error{Code::kResourceExhausted, full ? "remote pool: it still reads puts that were late"
                                                : "remote pool: it was late or full just now"};
  }
  ++s.puts_open;
  s.targets.PutBegun(target, now);
  return {};
}

Result<void> RemotePageStore::State::PutEnded(const PutCall& call, const RemoteDone& done,
                                              Seconds now) {
  const std::lock_guard lock(mutex);
  if (done.released) {
    --puts_open;
    targets.PutReleased(call.target);
  }
  if (!done.ended) return {};
  if (done.error) {
    ++stats.puts_failed;
    const Code code = done.error->code;
    const bool of_the_node = code == Code::kDeadlineExceeded || code == Code::kResourceExhausted ||
                             code == Code::kUnavailable;
    if (of_the_node) targets.PutFailed(call.target, now);
    return WithContext(*done.error, "remote pool");
  }
  ++stats.puts;
  stats.put += call.length;
  targets.PutEnded(call.target);
  bad.Rewritten(PageAt(call.key, call.target), Tier::kRemote);
  return {};
}

}  // namespace divisi
