// The memory behind KV pages: one contiguous object per page, holding all layers of kBlockTokens
// tokens, so that a page is one write to the network or to a file.
//
// Inside a page, per layer, per kv head: K then V, laid out for the attention kernel
// (docs/numerics.md):
//   bf16:  K [Dh/2][16 tokens][2]   pairs of channels of one token are neighbours
//          V [8][Dh][2]             pairs of tokens of one channel are neighbours
//   f32:   K [Dh][16 tokens],  V [16 tokens][Dh]
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "divisi/core/huge_memory.h"
#include "divisi/core/ids.h"
#include "divisi/model/compute_type.h"

namespace divisi {

struct KvLayout {
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;  // Even.
  ComputeType type = ComputeType::kBf16;

  int64_t ElementSize() const { return type == ComputeType::kBf16 ? 2 : 4; }
  int64_t HeadBytes() const { return 2 * ElementSize() * kBlockTokens * head_dim; }  // K and V
  int64_t LayerBytes() const { return HeadBytes() * kv_heads; }
  int64_t PageBytes() const { return LayerBytes() * layers; }
};

class KvPages {
 public:
  // Reserves address space for `pages` zeroed pages; memory is taken as they are first written.
  // Errors: kResourceExhausted for more pages than BlockId numbers, or when the system refuses.
  static Result<KvPages> Create(const KvLayout& layout, int64_t pages);

  const KvLayout& layout() const { return layout_; }
  int64_t pages() const { return memory_.data() == nullptr ? 0 : pages_; }  // 0: moved away.
  // All pages, PageBytes() each, in the order of their numbers.
  std::span<std::byte> memory() const {
    return {memory_.data(), static_cast<size_t>(memory_.size().value)};
  }
  // K of (page, layer, head); V follows HeadBytes() / 2 later.
  std::byte* Head(BlockId page, int layer, int head) const {
    return memory_.data() + page * layout_.PageBytes() + layer * layout_.LayerBytes() +
           head * layout_.HeadBytes();
  }

 private:
  KvPages(const KvLayout& layout, int64_t pages, HugeMemory memory)
      : layout_(layout), pages_(pages), memory_(std::move(memory)) {}
  KvLayout layout_;
  int64_t pages_ = 0;
  HugeMemory memory_;
};

}  // namespace divisi
