// For tests of what moves pages: pages with content that their key tells, and a store around
// another one that is slow, fails now and then, or hangs.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "divisi/core/random.h"
#include "divisi/kv/page_store.h"

namespace divisi {

// Page `number` of a chain, and its bytes: a function of the number.
inline PageHeader NumberedPage(int number, const PageShape& shape) {
  PageHeader header{.shape = shape, .position = int64_t{16} * number};
  std::memcpy(header.key.bytes.data(), &number, sizeof number);
  const int before = number - 1;
  std::memcpy(header.parent.bytes.data(), &before, sizeof before);
  header.root.bytes[31] = 7;
  header.model.bytes[31] = 9;
  return header;
}

inline std::vector<std::byte> NumberedPayload(int number, const PageShape& shape) {
  Random random(static_cast<uint64_t>(number) + 1);
  std::vector<std::byte> payload(static_cast<size_t>(shape.PayloadBytes()));
  for (size_t i = 0; i < payload.size(); i += sizeof(uint64_t)) {
    const uint64_t word = random.Next64();
    std::memcpy(payload.data() + i, &word, std::min(sizeof word, payload.size() - i));
  }
  return payload;
}

// Whatever goes wrong, on command. Safe from any thread.
class Trouble {
 public:
  // 0: none. Each k-th read of layers, or each k-th Put, fails.
  std::atomic<int64_t> fail_every_read = 0;
  std::atomic<int64_t> fail_every_put = 0;
  std::atomic<int> read_seconds_micro = 0;  // What each read takes besides its own time.

  // Reads (and puts) stand still from Hang to Resume.
  void Hang() { Set(true); }
  void Resume() { Set(false); }
  // Whether anybody stands still.
  bool standing() const { return standing_ > 0; }

  bool ReadFails() { return Due(reads_, fail_every_read); }
  bool PutFails() { return Due(puts_, fail_every_put); }
  void Delay() {
    std::unique_lock lock(mutex_);
    ++standing_;
    changed_.wait(lock, [this] { return !hanging_; });
    --standing_;
    if (read_seconds_micro == 0) return;
    changed_.wait_for(lock, std::chrono::microseconds(read_seconds_micro.load()),
                      [] { return false; });
  }

 private:
  static bool Due(std::atomic<int64_t>& count, int64_t every) {
    return every > 0 && ++count % every == 0;
  }
  void Set(bool hanging) {
    const std::lock_guard lock(mutex_);
    hanging_ = hanging;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool hanging_ = false;
  std::atomic<int> standing_ = 0;
  std::atomic<int64_t> reads_ = 0, puts_ = 0;
};

class TroubledReader final : public PageReader {
 public:
  TroubledReader(std::unique_ptr<PageReader> inner, std::shared_ptr<Trouble> trouble)
      : inner_(std::move(inner)), trouble_(std::move(trouble)) {}
  const PageHeader& header() const override { return inner_->header(); }
  Result<void> ReadLayers(int first, int count, std::span<std::byte> to) override {
    trouble_->Delay();
    if (trouble_->ReadFails()) return Error{Code::kUnavailable, "a read failed on command"};
    return inner_->ReadLayers(first, count, to);
  }
  bool WillRead(int first, int count) override { return inner_->WillRead(first, count); }

 private:
  std::unique_ptr<PageReader> inner_;
  std::shared_ptr<Trouble> trouble_;
};

class TroubledStore final : public PageStore {
 public:
  TroubledStore(std::shared_ptr<PageStore> inner, std::shared_ptr<Trouble> trouble)
      : inner_(std::move(inner)), trouble_(std::move(trouble)) {}
  Result<std::unique_ptr<PageReader>> Open(const BlockKey& key) override {
    ASSIGN_OR_RETURN(auto reader, inner_->Open(key));
    return std::unique_ptr<PageReader>(new TroubledReader(std::move(reader), trouble_));
  }
  Result<void> Put(const PageHeader& header, std::span<const std::byte> payload) override {
    trouble_->Delay();
    if (trouble_->PutFails()) return Error{Code::kUnavailable, "a write failed on command"};
    return inner_->Put(header, payload);
  }
  void Remove(const BlockKey& key) override { inner_->Remove(key); }

 private:
  std::shared_ptr<PageStore> inner_;
  std::shared_ptr<Trouble> trouble_;  // Shared with the test, which commands it.
};

}  // namespace divisi
