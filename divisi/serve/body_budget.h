// What request bodies may hold in memory, all connections together. A body is counted from the byte
// that comes in until its request is destroyed, also when that is after the server: the count is
// shared by those who hold parts of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace divisi {

class BodyBudget {
 public:
  // A part of the budget, given back on destruction. Empty by default.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept
        : used_(std::move(other.used_)), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(used_, other.used_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() {
      if (used_ != nullptr) used_->fetch_sub(bytes_, std::memory_order_relaxed);
    }

   private:
    friend class BodyBudget;
    std::shared_ptr<std::atomic<size_t>> used_;
    size_t bytes_ = 0;
  };

  explicit BodyBudget(size_t limit) : limit_(limit) {}

  // Makes `share` hold `bytes`, more than it did. False, and nothing changes, when the budget has
  // not that much left. From any thread.
  bool TryGrow(Share& share, size_t bytes) {
    if (bytes <= share.bytes_) return true;
    const size_t more = bytes - share.bytes_;
    if (used_->fetch_add(more, std::memory_order_relaxed) + more > limit_) {
      used_->fetch_sub(more, std::memory_order_relaxed);
      return false;
    }
    share.used_ = used_;
    share.bytes_ = bytes;
    return true;
  }
  size_t used() const { return used_->load(std::memory_order_relaxed); }

 private:
  const size_t limit_;
  const std::shared_ptr<std::atomic<size_t>> used_ = std::make_shared<std::atomic<size_t>>(0);
};

}  // namespace divisi
