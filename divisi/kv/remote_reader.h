// Readers of pages that come from the remote pool: of whole objects, and of parts (remote_store.h).
#pragma once

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "divisi/core/check.h"
#include "divisi/kv/remote_store.h"

namespace divisi {

// Of an object that is there whole.
class WholeReader final : public PageReader {
 public:
  WholeReader(RemotePageStore& store, size_t buffer, PageHead head)
      : store_(store), buffer_(buffer), head_(std::move(head)) {}
  WholeReader(const WholeReader&) = delete;
  WholeReader& operator=(const WholeReader&) = delete;
  ~WholeReader() override { store_.EndReading(buffer_); }

  const PageHeader& header() const override { return head_.header; }

  Result<void> ReadLayers(int first, int count, std::span<std::byte> to) override {
    const PageShape& shape = head_.header.shape;
    const auto layer = static_cast<size_t>(shape.layer_bytes);
    CHECK(first >= 0 && count >= 0 && first + count <= shape.layers &&
          to.size() == static_cast<size_t>(count) * layer);
    return store_.Copy(head_, first, buffer_, to);
  }

 private:
  RemotePageStore& store_;
  const size_t buffer_;
  const PageHead head_;
};

// Of an object of which only the head is there: its layers come in parts.
class PartReader final : public PageReader {
 public:
  // wait: of all its reads.
  PartReader(RemotePageStore& store, PageHead head, const RemotePageStore::Wait& wait)
      : store_(store), head_(std::move(head)), wait_(wait) {}
  PartReader(const PartReader&) = delete;
  PartReader& operator=(const PartReader&) = delete;
  ~PartReader() override {
    Release();
    for (const auto& part : hinted_) store_.Forget(head_.header.key, part);
  }

  const PageHeader& header() const override { return head_.header; }

  bool WillRead(int first, int count) override {
    for (const Run& run : RunsOf(first, count)) {
      const auto part = store_.Layers(run.first, run.count);
      if (!store_.Hint(head_.header.key, part)) return false;
      hinted_.push_back(part);
    }
    return true;
  }

  Result<void> Await(int first, int count) override {
    Release();
    for (Run run : RunsOf(first, count)) {
      if (const auto there = Await(run); !there) {
        Release();
        return there.error();
      }
    }
    return {};
  }

  // Run by run, so that a few buffers are enough, unless all of them are there.
  Result<void> ReadLayers(int first, int count, std::span<std::byte> to) override {
    const auto layer = static_cast<size_t>(head_.header.shape.layer_bytes);
    CHECK(first >= 0 && count >= 0 && first + count <= head_.header.shape.layers &&
          to.size() == static_cast<size_t>(count) * layer);
    std::vector<Run> runs = RunsOf(first, count);
    const bool there = !there_.empty() && there_.size() == runs.size() &&
                       there_.front().first == first && there_.back().count == runs.back().count;
    if (there) runs = there_;
    for (Run& run : runs) {
      if (!there) {
        Release();
        RETURN_IF_ERROR(Await(run));
      }
      const auto bytes = static_cast<size_t>(run.count) * layer;
      RETURN_IF_ERROR(store_.Copy(head_, run.first, run.buffer, to.first(bytes)));
      to = to.subspan(bytes);
    }
    Release();
    return {};
  }

 private:
  struct Run {
    int first = 0, count = 0;
    size_t buffer = 0;
  };

  std::vector<Run> RunsOf(int first, int count) const {
    std::vector<Run> runs;
    for (const int end = first + count; first < end; first += store_.run()) {
      runs.push_back({first, std::min(store_.run(), end - first)});
    }
    return runs;
  }
  Result<void> Await(Run& run) {
    const BlockKey& key = head_.header.key;
    const auto part = store_.Layers(run.first, run.count);
    std::erase(hinted_, part);
    const auto wait = store_.Until(wait_.until, wait_.landing);
    ASSIGN_OR_RETURN(run.buffer, store_.Claim(key, part, wait));
    there_.push_back(run);
    if (const auto length = store_.WaitFor(run.buffer, wait); !length) {
      return store_.Failed(run.buffer, length.error());
    }
    return {};
  }
  void Release() {
    for (const Run& run : there_) store_.EndReading(run.buffer);
    there_.clear();
  }

  RemotePageStore& store_;
  const PageHead head_;
  const RemotePageStore::Wait wait_;
  std::vector<Run> there_;  // Claimed
  std::vector<RemotePageStore::Part> hinted_;
};

}  // namespace divisi
