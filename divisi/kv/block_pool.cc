#include "divisi/kv/block_pool.h"

#include <limits>

#include "divisi/core/check.h"

namespace divisi {

BlockPool::BlockPool(int64_t blocks) {
  CHECK(blocks >= 0 && blocks <= std::numeric_limits<BlockId>::max(), "blocks {}", blocks);
  pages_.resize(static_cast<size_t>(blocks));
  ring_.older = ring_.newer = blocks;
  free_.reserve(pages_.size());
  for (int64_t block = blocks - 1; block >= 0; --block)
    free_.push_back(static_cast<BlockId>(block));
}

const BlockPool::Page& BlockPool::PageAt(BlockId block) const {
  CHECK(block >= 0 && block < total(), "block {} of {}", block, total());
  return pages_[static_cast<size_t>(block)];
}

BlockPool::Page& BlockPool::PageAt(BlockId block) {
  return const_cast<Page&>(std::as_const(*this).PageAt(block));
}

void BlockPool::PushNewest(BlockId block) {
  Page& page = PageAt(block);
  const int64_t sentinel = total();
  page.older = ring_.older;
  page.newer = sentinel;
  (ring_.older == sentinel ? ring_ : pages_[static_cast<size_t>(ring_.older)]).newer = block;
  ring_.older = block;
  ++cached_;
}

void BlockPool::Unlink(BlockId block) {
  Page& page = PageAt(block);
  const int64_t sentinel = total();
  (page.older == sentinel ? ring_ : pages_[static_cast<size_t>(page.older)]).newer = page.newer;
  (page.newer == sentinel ? ring_ : pages_[static_cast<size_t>(page.newer)]).older = page.older;
  page.older = page.newer = -1;
  --cached_;
}

std::optional<BlockId> BlockPool::Allocate(std::optional<BlockKey>* evicted) {
  BlockId block;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else if (cached_ > 0) {
    block = static_cast<BlockId>(ring_.newer);
    Unlink(block);
    by_key_.erase(*PageAt(block).key);
    if (evicted != nullptr) *evicted = PageAt(block).key;
    PageAt(block).key.reset();
    ++evictions_;
  } else {
    return std::nullopt;
  }
  Page& page = PageAt(block);
  CHECK(page.references == 0 && !page.key, "block {} is in use", block);
  page.references = 1;
  return block;
}

std::optional<BlockId> BlockPool::Find(const BlockKey& key) const {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  return found->second;
}

void BlockPool::Reference(BlockId block) {
  Page& page = PageAt(block);
  if (page.references == 0) {
    CHECK(page.key.has_value(), "block {} is free", block);
    Unlink(block);
  }
  ++page.references;
}

void BlockPool::Release(std::span<const BlockId> blocks) {
  for (size_t i = blocks.size(); i-- > 0;) {
    const BlockId block = blocks[i];
    Page& page = PageAt(block);
    CHECK(page.references > 0, "block {} released twice", block);
    if (--page.references > 0) continue;
    if (page.key) {
      PushNewest(block);
    } else {
      free_.push_back(block);
    }
  }
}

bool BlockPool::Publish(BlockId block, const BlockKey& key) {
  Page& page = PageAt(block);
  CHECK(page.references > 0, "block {} published by nobody", block);
  if (page.key == key) return true;
  CHECK(!page.key, "block {} is published as {}", block, page.key->Hex());
  if (!by_key_.try_emplace(key, block).second) return false;
  page.key = key;
  return true;
}

void BlockPool::Verify() const {
  std::vector<int> seen(pages_.size(), 0);
  for (const BlockId block : free_) {
    const Page& page = PageAt(block);
    CHECK(page.references == 0 && !page.key, "free block {} is in use", block);
    ++seen[static_cast<size_t>(block)];
  }
  int64_t listed = 0;
  for (int64_t at = ring_.newer; at != total(); at = pages_[static_cast<size_t>(at)].newer) {
    const Page& page = PageAt(static_cast<BlockId>(at));
    CHECK(page.references == 0 && page.key, "cached block {}", at);
    CHECK(++listed <= cached_, "the list of cached blocks is longer than {}", cached_);
    ++seen[static_cast<size_t>(at)];
  }
  CHECK(listed == cached_, "{} blocks listed, {} counted as cached", listed, cached_);
  size_t keys = 0;
  for (size_t i = 0; i < pages_.size(); ++i) {
    const Page& page = pages_[i];
    CHECK(page.references >= 0 && seen[i] + (page.references > 0) == 1, "block {} is in {} places",
          i, seen[i] + (page.references > 0));
    if (!page.key) continue;
    ++keys;
    const auto found = by_key_.find(*page.key);
    CHECK(found != by_key_.end() && found->second == static_cast<BlockId>(i),
          "block {} is not found by its key", i);
  }
  CHECK(keys == by_key_.size(), "{} keys for {} pages", by_key_.size(), keys);
}

}  // namespace divisi
