// For tests: a remote pool within the process that answers on command, is slow, damages objects,
// or gives nothing back in time. Its thread is that of a real one.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "divisi/kv/remote_hub.h"

namespace divisi {

// What outlives the pool, and what a test does to it. Safe from any thread.
class ScriptedPool {
 public:
  using Object = std::vector<std::byte>;

  std::optional<Object> Of(const BlockKey& key) const {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(key);
    return found == objects_.end() ? std::nullopt : std::optional(found->second);
  }
  void Set(const BlockKey& key, Object object) {
    const std::lock_guard lock(mutex_);
    objects_[key] = std::move(object);
  }
  bool Add(const BlockKey& key, std::span<const std::byte> object) {
    const std::lock_guard lock(mutex_);
    return objects_.try_emplace(key, object.begin(), object.end()).second;
  }
  bool Erase(const BlockKey& key) {
    const std::lock_guard lock(mutex_);
    return objects_.erase(key) > 0;
  }
  std::vector<BlockKey> Keys() const {
    const std::lock_guard lock(mutex_);
    std::vector<BlockKey> keys;
    for (const auto& [key, object] : objects_) keys.push_back(key);
    return keys;
  }
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return objects_.size();
  }

  std::atomic<int> micros = 0;              // That each call takes, one after the other.
  std::atomic<int> patience = 1;            // Calls have so many times their time.
  std::atomic<bool> parts = false;          // It gives parts; to be set before the pool is made.
  std::atomic<bool> silent = false;         // Calls end at their deadline,
  std::atomic<bool> silent_layers = false;  // As silent, of gets of what is behind the head.
  std::atomic<bool> hold = false;           // and their memory is not released while this is so.
  std::atomic<int> error = 0;               // Instead of an answer: a Code.
  std::atomic<int> targets = 0;    // Nodes, of which each key has one; 0: that is not told.
  std::atomic<int> troubled = -1;  // The only one of them that is silent or answers so; -1: all.
  std::atomic<int> directed = -1;  // Whom all keys' calls go to; -1: each key's to its own.

  // Whom a key's calls go to.
  std::optional<uint64_t> TargetOf(const BlockKey& key) const {
    if (directed >= 0) return static_cast<uint64_t>(directed.load());
    return targets == 0 ? std::nullopt : std::optional<uint64_t>(key.bytes[0] % targets);
  }
  bool Troubles(const BlockKey& key) const {
    return troubled < 0 || TargetOf(key) == static_cast<uint64_t>(troubled.load());
  }
  std::atomic<int> gets = 0, puts = 0, asked = 0;  // Begun
  std::atomic<int> under_way = 0, most_under_way = 0;

 private:
  mutable std::mutex mutex_;
  std::map<BlockKey, Object> objects_;
};

class ScriptedPages final : public RemotePages {
 public:
  ScriptedPages(std::shared_ptr<ScriptedPool> pool, const Clock& clock, std::function<void()> wake)
      : pool_(std::move(pool)), clock_(clock), wake_(std::move(wake)) {
    thread_ = std::thread([this] { Loop(); });
  }
  ~ScriptedPages() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  uint64_t Get(const BlockKey& key, std::span<std::byte> to, Seconds deadline) override {
    ++pool_->gets;
    return Leave({.kind = 'g', .keys = {key}, .to = to}, deadline);
  }
  uint64_t GetPart(const BlockKey& key, Bytes skip, std::span<std::byte> to,
                   Seconds deadline) override {
    ++pool_->gets;
    return Leave({.kind = 'g', .keys = {key}, .to = to, .skip = skip}, deadline);
  }
  bool gets_parts() const override { return pool_->parts; }
  uint64_t Put(const BlockKey& key, std::span<const std::byte> object, Seconds deadline) override {
    ++pool_->puts;
    return Leave({.kind = 'p', .keys = {key}, .object = object}, deadline);
  }
  uint64_t Has(std::vector<BlockKey> keys, Seconds deadline) override {
    ++pool_->asked;
    return Leave({.kind = 'h', .keys = std::move(keys)}, deadline);
  }
  uint64_t Remove(std::vector<BlockKey> keys, Seconds deadline) override {
    return Leave({.kind = 'r', .keys = std::move(keys)}, deadline);
  }
  uint64_t Clear(Seconds deadline) override { return Leave({.kind = 'c'}, deadline); }
  std::optional<uint64_t> TargetOf(const BlockKey& key) const override {
    return pool_->TargetOf(key);
  }
  std::vector<RemoteDone> Poll() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(done_, {});
  }
  std::vector<RemoteHealth> health() const override {
    return {{.address = "scripted", .ready = !pool_->silent}};
  }

 private:
  struct Call {
    char kind = 'g';
    uint64_t number = 0;
    std::vector<BlockKey> keys;
    std::span<std::byte> to;
    std::span<const std::byte> object;
    std::optional<Bytes> skip;
    Seconds deadline;
  };

  uint64_t Leave(Call call, Seconds deadline) {
    call.deadline = clock_.Now() + deadline * pool_->patience.load();
    const std::lock_guard lock(mutex_);
    call.number = ++last_;
    pool_->most_under_way = std::max(pool_->most_under_way.load(), ++pool_->under_way);
    calls_.push_back(std::move(call));
    changed_.notify_all();
    return last_;
  }

  void Loop() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      const bool any = Step(lock);
      if (!done_.empty()) {
        lock.unlock();
        wake_();
        lock.lock();
      }
      if (!any && !stop_) changed_.wait_for(lock, std::chrono::milliseconds(1));
    }
  }

  bool Step(std::unique_lock<std::mutex>& lock) {
    if (!held_.empty() && !pool_->hold) {
      for (const Call& call : std::exchange(held_, {})) {
        if (call.kind == 'g') std::ranges::fill(call.to, std::byte{0xdd});  // Late bytes
        done_.push_back({.call = call.number, .ended = false});
      }
    }
    for (auto call = calls_.begin(); call != calls_.end(); ++call) {
      if (clock_.Now() < call->deadline) continue;
      End(*call, {.error = Error{Code::kDeadlineExceeded, "late"}, .released = !pool_->hold});
      if (pool_->hold) held_.push_back(*call);
      calls_.erase(call);
      return true;
    }
    const auto next = std::ranges::find_if(calls_, [this](const Call& waiting) {
      if (waiting.skip && waiting.skip->value > 0 && pool_->silent_layers) return false;
      return !pool_->silent || waiting.keys.empty() || !pool_->Troubles(waiting.keys[0]);
    });
    if (next == calls_.end()) return false;
    const Call call = std::move(*next);
    calls_.erase(next);
    if (pool_->micros > 0) {
      changed_.wait_for(lock, std::chrono::microseconds(pool_->micros), [&] { return stop_; });
    }
    End(call, Answer(call));
    return true;
  }
  void End(const Call& call, RemoteDone done) {
    done.call = call.number;
    --pool_->under_way;
    done_.push_back(std::move(done));
  }

  RemoteDone Answer(const Call& call) {
    const bool trouble = call.keys.empty() || pool_->Troubles(call.keys[0]);
    if (pool_->error != 0 && trouble)
      return {.error = Error{static_cast<Code>(pool_->error.load()), "so"}};
    RemoteDone done;
    if (call.kind == 'g') {
      const auto object = pool_->Of(call.keys[0]);
      if (!object) return {.error = Error{Code::kNotFound, "no such object"}};
      const auto skip = static_cast<size_t>(call.skip.value_or(Bytes(0)).value);
      const bool fits =
          call.skip ? skip + call.to.size() <= object->size() : object->size() <= call.to.size();
      if (!fits) return {.error = Error{Code::kOutOfRange, "too large, or too small"}};
      const size_t length = call.skip ? call.to.size() : object->size();
      std::ranges::copy(std::span(*object).subspan(skip, length), call.to.begin());
      done.length = Bytes(static_cast<int64_t>(object->size()));
    } else if (call.kind == 'p') {
      pool_->Add(call.keys[0], call.object);
    } else {
      for (const BlockKey& key : call.keys) {
        if (call.kind == 'h') done.have.push_back(pool_->Of(key).has_value());
        if (call.kind == 'r') done.count += pool_->Erase(key);
      }
    }
    return done;
  }

  const std::shared_ptr<ScriptedPool> pool_;
  const Clock& clock_;
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Call> calls_, held_;
  std::vector<RemoteDone> done_;
  uint64_t last_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

inline std::shared_ptr<RemoteHub> ScriptedHub(std::shared_ptr<ScriptedPool> pool, Bytes memory) {
  return RemoteHub::Create(
             memory,
             [&](std::span<std::byte>, const Clock& clock,
                 std::function<void()> wake) -> Result<std::unique_ptr<RemotePages>> {
               return std::unique_ptr<RemotePages>(new ScriptedPages(pool, clock, std::move(wake)));
             })
      .value();
}

}  // namespace divisi
