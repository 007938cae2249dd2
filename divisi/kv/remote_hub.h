// One remote pool for all of a process: its memory, and who of those that share it began which
// call. RemotePages has one Poll; here each end goes to its caller.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "divisi/core/clock.h"
#include "divisi/core/huge_memory.h"
#include "divisi/core/result.h"
#include "divisi/kv/remote_pages.h"

namespace divisi {

// Safe from any thread.
class RemoteHub {
 public:
  // Gets each RemoteDone of its call, in order, on the pool's thread. It may begin calls; it may
  // not wait.
  using Sink = std::function<void(const RemoteDone&)>;
  // A pool whose gets go to `memory`; both outlive it, and it calls `wake` when Poll has something.
  using Make = std::function<Result<std::unique_ptr<RemotePages>>(
      std::span<std::byte> memory, const Clock& clock, std::function<void()> wake)>;

  // memory: where objects arrive that are being read.
  // Errors: kResourceExhausted for memory that the system refuses; those of make.
  static Result<std::shared_ptr<RemoteHub>> Create(Bytes memory, const Make& make);
  // Ends the pool: from the return on no sink is called, and nothing lands any more.
  ~RemoteHub();
  RemoteHub(const RemoteHub&) = delete;
  RemoteHub& operator=(const RemoteHub&) = delete;

  std::span<std::byte> memory() const {
    return {memory_.data(), static_cast<size_t>(memory_.size().value)};
  }
  const Clock& clock() const { return clock_; }

  // As RemotePages says; deadlines count from now.
  void Get(const BlockKey& key, std::span<std::byte> to, Seconds deadline, Sink sink);
  void GetPart(const BlockKey& key, Bytes skip, std::span<std::byte> to, Seconds deadline,
               Sink sink);
  bool gets_parts() const { return gets_parts_; }
  void Put(const BlockKey& key, std::span<const std::byte> object, Seconds deadline, Sink sink);
  void Has(std::vector<BlockKey> keys, Seconds deadline, Sink sink);
  void Remove(std::vector<BlockKey> keys, Seconds deadline);
  void Direct(std::span<const BlockKey> keys, const std::string& peer);
  std::optional<uint64_t> TargetOf(const BlockKey& key) const;
  std::vector<RemoteHealth> health() const;

 private:
  explicit RemoteHub(HugeMemory memory) : memory_(std::move(memory)) {}
  template <typename Begin>
  void Call(Sink sink, const Begin& begin);
  void Pump();

  const SteadyClock clock_;
  const HugeMemory memory_;
  bool gets_parts_ = false;  // Since Create
  std::mutex pumping_;       // Before mutex_; sinks run under it, so that ends stay in order.
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  bool ending_ = false;
  std::unordered_map<uint64_t, std::shared_ptr<Sink>> sinks_;
  std::unique_ptr<RemotePages> pages_;
};

}  // namespace divisi
