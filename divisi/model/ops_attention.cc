// The operations around KV pages: storing a step's K and V, and attention over them.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "divisi/core/check.h"
#include "divisi/model/ops.h"
#include "divisi/model/ops_kernels.h"
#include "divisi/model/ops_parallel.h"

namespace divisi {
namespace {

// Where each row of a step lies in its sequence.
struct RowPlace {
  int64_t position = 0;
  BlockId page = 0;
  int slot = 0;  // Token within the page.
};

std::vector<RowPlace> PlaceRows(std::span<const SequenceRows> sequences, int64_t rows,
                                const KvPages& pages) {
  std::vector<RowPlace> places(static_cast<size_t>(rows));
  int64_t next = 0;
  for (const SequenceRows& sequence : sequences) {
    CHECK(sequence.first_row == next, "rows of a sequence begin at {}, not {}", sequence.first_row,
          next);
    const int64_t end = sequence.start + sequence.rows;
    CHECK(static_cast<int64_t>(sequence.pages.size()) >= PagesFor(end), "{} pages for {} positions",
          sequence.pages.size(), end);
    for (int64_t i = 0; i < sequence.rows; ++i) {
      const int64_t position = sequence.start + i;
      const BlockId page = sequence.pages[static_cast<size_t>(position / kBlockTokens)];
      CHECK(page >= 0 && page < pages.pages(), "page {} of {}", page, pages.pages());
      places[static_cast<size_t>(next + i)] = {position, page,
                                               static_cast<int>(position % kBlockTokens)};
    }
    next += sequence.rows;
  }
  CHECK(next == rows, "sequences have {} rows, the step {}", next, rows);
  return places;
}

// Scatters one token's K and V of one head (kv_pages.h has the layout). Element: bf16 bits or f32.
template <typename Element>
void StoreToken(std::byte* head, int slot, const Element* k, const Element* v, int64_t dim) {
  constexpr int64_t kStep = sizeof(Element) == 2 ? 2 : 1;
  Element* keys = reinterpret_cast<Element*>(head);
  for (int64_t i = 0; i < dim; i += kStep) {
    for (int64_t j = 0; j < kStep; ++j) keys[i * kBlockTokens + slot * kStep + j] = k[i + j];
  }
  Element* values = keys + dim * kBlockTokens + slot / kStep * kStep * dim + slot % kStep;
  for (int64_t i = 0; i < dim; ++i) values[i * kStep] = v[i];
}

}  // namespace

int64_t AttentionScratchFloats(int64_t vectors, int64_t head_dim) {
  const int64_t padded_dim = (head_dim + 15) / 16 * 16;
  // AttentionState: scores of a tile; sums, the maximum and the weight of each vector.
  return kQueryTile * kAttentionChunk + vectors * (padded_dim + 2);
}

void Ops::StoreQkv(const QkvRows& rows, const RopeTable& rope, const QkvOptions& options,
                   const KvLayer& kv) {
  const Matrix &q = rows.q, &k = rows.k, &v = rows.v;
  const Activations& q_out = rows.q_out;
  const KvLayout& layout = kv.pages.layout();
  const int64_t dim = layout.head_dim;
  CHECK(q_out.type == layout.type && q_out.rows == q.rows && q_out.cols == q.cols &&
            k.rows == q.rows && v.rows == q.rows && q.cols % dim == 0 &&
            k.cols == layout.kv_heads * dim && v.cols == k.cols && 2 * rope.half_dim == dim,
        "q [{}, {}], k [{}, {}], v [{}, {}], heads of {}, rope of {}", q.rows, q.cols, k.rows,
        k.cols, v.rows, v.cols, dim, 2 * rope.half_dim);
  CHECK(kv.layer >= 0 && kv.layer < layout.layers, "layer {} of {}", kv.layer, layout.layers);
  const std::vector<RowPlace> places = PlaceRows(kv.sequences, q.rows, kv.pages);
  const auto rotate = [&](float* x, std::span<const float> gain, int64_t position) {
    CHECK(position < rope.positions, "position {} of {}", position, rope.positions);
    CHECK(gain.empty() || static_cast<int64_t>(gain.size()) == dim, "gain of {}", gain.size());
    kernels_->rotate({.x = x,
                      .gain = gain.empty() ? nullptr : gain.data(),
                      .cosine = rope.cosine.data() + position * rope.half_dim,
                      .sine = rope.sine.data() + position * rope.half_dim,
                      .half_dim = rope.half_dim,
                      .eps = static_cast<float>(options.eps)});
  };
  ForRows(*pool_, q.rows, 4 * (q.cols + k.cols), [&](int64_t row) {
    const RowPlace& place = places[static_cast<size_t>(row)];
    float* q_row = q.data + row * q.cols;
    float* k_row = k.data + row * k.cols;
    float* v_row = v.data + row * v.cols;
    for (int64_t i = 0; i < q.cols; i += dim) rotate(q_row + i, options.q_gain, place.position);
    for (int64_t i = 0; i < k.cols; i += dim) rotate(k_row + i, options.k_gain, place.position);
    if (layout.type == ComputeType::kF32) {
      std::memcpy(q_out.data + row * q.cols * 4, q_row, static_cast<size_t>(q.cols) * 4);
      for (int head = 0; head < layout.kv_heads; ++head) {
        StoreToken(kv.pages.Head(place.page, kv.layer, head), place.slot, k_row + head * dim,
                   v_row + head * dim, dim);
      }
      return;
    }
    kernels_->round_to_bf16(q_row, q.cols, reinterpret_cast<uint16_t*>(q_out.data) + row * q.cols);
    // Rounded over themselves: element i is written after it and all before it were read.
    uint16_t* k_bits = reinterpret_cast<uint16_t*>(k_row);
    uint16_t* v_bits = reinterpret_cast<uint16_t*>(v_row);
    kernels_->round_to_bf16(k_row, k.cols, k_bits);
    kernels_->round_to_bf16(v_row, v.cols, v_bits);
    for (int head = 0; head < layout.kv_heads; ++head) {
      StoreToken(kv.pages.Head(place.page, kv.layer, head), place.slot, k_bits + head * dim,
                 v_bits + head * dim, dim);
    }
  });
}

void Ops::Attention(const Activations& q, const KvLayer& kv, Activations out) {
  const KvLayout& layout = kv.pages.layout();
  const int64_t dim = layout.head_dim;
  const int64_t heads = q.cols / dim;
  CHECK(q.type == layout.type && out.type == q.type && out.rows == q.rows && out.cols == q.cols &&
            q.cols % dim == 0 && heads % layout.kv_heads == 0,
        "q [{}, {}], out [{}, {}], {} kv heads of {}", q.rows, q.cols, out.rows, out.cols,
        layout.kv_heads, dim);
  const int64_t group = heads / layout.kv_heads;
  const int64_t heads_step = std::min(group, kAttentionVectors);
  const int64_t rows_step = kAttentionVectors / heads_step;
  const int64_t element = layout.ElementSize();
  std::vector<AttentionBlock> blocks;
  for (const SequenceRows& sequence : kv.sequences) {
    CHECK(static_cast<int64_t>(sequence.pages.size()) >= PagesFor(sequence.start + sequence.rows),
          "{} pages for {} positions", sequence.pages.size(), sequence.start + sequence.rows);
    for (int64_t row = 0; row < sequence.rows; row += rows_step) {
      for (int64_t head = 0; head < heads; head += std::min(heads_step, group - head % group)) {
        const int64_t offset = ((sequence.first_row + row) * heads + head) * dim * element;
        blocks.push_back({.q = q.data + offset,
                          .out = out.data + offset,
                          .row_bytes = heads * dim * element,
                          .rows = std::min(rows_step, sequence.rows - row),
                          .group = std::min(heads_step, group - head % group),
                          .head_dim = dim,
                          .start = sequence.start + row,
                          .pages = sequence.pages.data(),
                          .keys = kv.pages.Head(0, kv.layer, static_cast<int>(head / group)),
                          .page_bytes = layout.PageBytes(),
                          .scale = 1.0f / std::sqrt(static_cast<float>(dim))});
      }
    }
  }
  // The longest first, so that threads end together.
  const auto cost = [](const AttentionBlock& b) { return (b.start + b.rows) * b.rows * b.group; };
  std::stable_sort(blocks.begin(), blocks.end(),
                   [&](const auto& a, const auto& b) { return cost(a) > cost(b); });
  for (auto& scratch : scratch_) {
    scratch.resize(static_cast<size_t>(AttentionScratchFloats(kAttentionVectors, dim)));
  }
  const auto kernel =
      layout.type == ComputeType::kBf16 ? kernels_->attention_bf16 : kernels_->attention_f32;
  RunFlushed(*pool_, static_cast<int64_t>(blocks.size()), [&](int64_t task, int thread) {
    AttentionBlock block = blocks[static_cast<size_t>(task)];
    block.scratch = scratch_[static_cast<size_t>(thread)].data();
    kernel(block);
  });
}

}  // namespace divisi
