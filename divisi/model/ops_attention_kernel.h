// Attention of a block of query vectors over paged K and V, with an online softmax that takes
// kAttentionChunk positions a round, always from position 0.
//
// A page of K has its 16 tokens side by side, so a vector of 16 lanes holds the scores of a page
// and no sum across lanes is needed; a page of V has channels side by side. What a query vector at
// position t computes is a function of t alone: lanes beyond t are replaced, never multiplied by
// zero, because an unwritten slot may hold any bits; V is read no further than t, and the other
// half of t's own pair is cleared.
// Source: online softmax, Milakov and Gimelshein 2018; tiling, Dao et al. 2022.
#pragma once

#include "divisi/model/ops_rows.h"

namespace divisi {

inline constexpr int kChunkPages = static_cast<int>(kAttentionChunk / kBlockTokens);

// A chunk's pages for one kv head. Pages beyond the block's last repeat it: their lanes are masked.
struct ChunkPages {
  const std::byte* keys[kChunkPages];
  const std::byte* values[kChunkPages];
};

// What a block's query vectors carry from chunk to chunk, in AttentionBlock::scratch.
struct AttentionState {
  int64_t padded_dim = 0;    // head_dim rounded up to 16
  float* sums = nullptr;     // [vectors, padded_dim], of p V
  float* maxima = nullptr;   // [vectors]
  float* weights = nullptr;  // [vectors], of p
  float* scores = nullptr;   // [kQueryTile, kAttentionChunk]; then p, as bf16 or f32
};

template <int kCount>
struct Int {
  static constexpr int value = kCount;
};

// fn(Int<count>) for 1 <= count <= kMost.
template <int kMost, typename Fn>
inline void WithCount(int count, Fn fn) {
  if constexpr (kMost > 1) {
    if (count < kMost) return WithCount<kMost - 1>(count, fn);
  }
  fn(Int<kMost>{});
}

template <typename V, typename T>
class AttentionKernel {
 public:
  explicit AttentionKernel(const AttentionBlock& block) : block_(block) {
    const int64_t vectors = block.rows * block.group;
    state_.padded_dim = (block.head_dim + 15) / 16 * 16;
    state_.scores = block.scratch;
    state_.sums = state_.scores + kQueryTile * kAttentionChunk;
    state_.maxima = state_.sums + vectors * state_.padded_dim;
    state_.weights = state_.maxima + vectors;
    for (int64_t i = 0; i < vectors * state_.padded_dim; ++i) state_.sums[i] = 0;
    for (int64_t i = 0; i < vectors; ++i) state_.maxima[i] = -__builtin_inff();
    for (int64_t i = 0; i < vectors; ++i) state_.weights[i] = 0;
  }

  void Run() {
    const int64_t vectors = block_.rows * block_.group;
    const int64_t end = block_.start + block_.rows;
    for (int64_t position = 0; position < end; position += kAttentionChunk) {
      const ChunkPages pages = PagesAt(position, (end - 1) / kBlockTokens);
      next_ = PagesAt(position + kAttentionChunk, (end - 1) / kBlockTokens);
      for (int64_t v = 0; v < vectors; v += kQueryTile) {
        const int count = static_cast<int>(vectors - v < kQueryTile ? vectors - v : kQueryTile);
        if (Position(v + count - 1) < position) continue;
        WithCount<kQueryTile>(count, [&](auto n) { Round<n.value>(v, position, pages); });
      }
    }
    for (int64_t v = 0; v < vectors; ++v) WriteOut(v);
  }

 private:
  using F = typename V::F;

  int64_t Position(int64_t v) const { return block_.start + v / block_.group; }
  int64_t Offset(int64_t v) const {
    return v / block_.group * block_.row_bytes + v % block_.group * block_.head_dim * T::kBytes;
  }

  ChunkPages PagesAt(int64_t position, int64_t last_page) const {
    ChunkPages pages;
    for (int i = 0; i < kChunkPages; ++i) {
      const int64_t page = position / kBlockTokens + i;
      const int64_t id = block_.pages[page < last_page ? page : last_page];
      pages.keys[i] = block_.keys + id * block_.page_bytes;
      pages.values[i] = pages.keys[i] + kBlockTokens * block_.head_dim * T::kBytes;
    }
    return pages;
  }

  // One chunk for kCount query vectors from v on.
  template <int kCount>
  void Round(int64_t v, int64_t position, const ChunkPages& pages) {
    int seen[kCount];  // Positions of the chunk that each vector attends to.
    for (int i = 0; i < kCount; ++i) {
      const int64_t n = Position(v + i) + 1 - position;
      seen[i] = static_cast<int>(n < 0 ? 0 : n < kAttentionChunk ? n : kAttentionChunk);
    }
    // Where one tile is all, as in a decode step, a chunk is read once and memory is the limit: V
    // is fetched while scores are computed, and the next chunk's K while V is added.
    const bool fetch = block_.rows * block_.group <= kQueryTile;
    if (fetch) {
      Score<kCount, true>(v, pages);
    } else {
      Score<kCount, false>(v, pages);
    }
    alignas(64) float decay[16];
    Softmax<kCount>(v, seen, decay);
    if (fetch) {
      Accumulate<kCount, true>(v, seen, decay, pages);
    } else {
      Accumulate<kCount, false>(v, seen, decay, pages);
    }
  }

  // scores[i][position] = q . k, not scaled; garbage where the position is beyond the vector's.
  template <int kCount, bool kFetch>
  void Score(int64_t v, const ChunkPages& pages) {
    const std::byte* q[kCount];
    for (int i = 0; i < kCount; ++i) q[i] = block_.q + Offset(v + i);
    F acc[kCount][kChunkPages];
    for (auto& row : acc) {
      for (F& lanes : row) lanes = V::Zero();
    }
    const int64_t steps = block_.head_dim / T::kStep;
    for (int64_t step = 0; step < steps; ++step) {
      typename T::Vector k[kChunkPages];
#pragma GCC unroll 8
      for (int p = 0; p < kChunkPages; ++p) {
        k[p] = T::Load(pages.keys[p] + step * 16 * kLane);
        if constexpr (kFetch) __builtin_prefetch(pages.values[p] + step * 16 * kLane);
      }
#pragma GCC unroll 8
      for (int i = 0; i < kCount; ++i) {
        const auto qv = T::Broadcast(q[i] + step * kLane);
#pragma GCC unroll 8
        for (int p = 0; p < kChunkPages; ++p) acc[i][p] = MultiplyAdd<V>(acc[i][p], qv, k[p]);
      }
    }
    for (int i = 0; i < kCount; ++i) {
      for (int p = 0; p < kChunkPages; ++p) {
        V::Store(acc[i][p], state_.scores + i * kAttentionChunk + p * 16);
      }
    }
  }

  // Turns scores into p = e^(score - max) in place (rounded to the compute type) and moves maxima
  // and weights on. decay: what earlier sums are to be multiplied by.
  template <int kCount>
  void Softmax(int64_t v, const int* seen, float* decay) {
    const F lowest = V::Set(-__builtin_inff());
    for (int i = 0; i < 16; ++i) decay[i] = 0;
    for (int i = 0; i < kCount; ++i) {
      if (seen[i] == 0) continue;
      float* scores = state_.scores + i * kAttentionChunk;
      F max = lowest;
      for (int p = 0; p < kChunkPages; ++p) {
        const F scaled = V::Mul(V::Load(scores + 16 * p), V::Set(block_.scale));
        const F masked = V::FirstLanes(scaled, Clamp16(seen[i] - 16 * p), lowest);
        V::Store(masked, scores + 16 * p);
        max = V::Max(masked, max);  // Which keeps `max` where a score is not-a-number.
      }
      const float before = state_.maxima[v + i];
      const float here = V::MaxLane(max);
      const float after = here > before ? here : before;
      state_.maxima[v + i] = after;
      decay[i] = before - after;
    }
    V::Store(Exp<V>(V::Load(decay)), decay);
    for (int i = 0; i < kCount; ++i) {
      if (seen[i] == 0) continue;
      float* scores = state_.scores + i * kAttentionChunk;
      const F max = V::Set(state_.maxima[v + i]);
      F sum = V::Zero();
      for (int p = 0; p < kChunkPages; ++p) {
        sum = V::Add(sum, Weigh(Exp<V>(V::Sub(V::Load(scores + 16 * p), max)), i, p));
      }
      state_.weights[v + i] = __builtin_fmaf(state_.weights[v + i], decay[i], V::Sum(sum));
    }
  }

  // Stores the p of page `page` for vector i of the tile and returns it as stored.
  F Weigh(F p, int i, int page) {
    if constexpr (T::kBytes == 2) {
      p = V::RoundToBf16(p);
      V::StoreBf16(p, reinterpret_cast<uint16_t*>(Weights(i)) + 16 * page);
    } else {
      V::Store(p, reinterpret_cast<float*>(Weights(i)) + 16 * page);
    }
    return p;
  }
  // A bf16 p is stored over the scores of the same vector, always behind the page being read.
  std::byte* Weights(int i) const {
    return reinterpret_cast<std::byte*>(state_.scores + i * kAttentionChunk);
  }

  // sums = sums * decay + p V. Steps (pairs of positions in bf16) that every vector sees in full
  // are done together; the rest of the chunk one vector at a time.
  template <int kCount, bool kFetch>
  void Accumulate(int64_t v, const int* seen, const float* decay, const ChunkPages& pages) {
    int shared = kAttentionChunk / T::kStep;
    for (int i = 0; i < kCount; ++i) {
      if (seen[i] / T::kStep < shared) shared = seen[i] / T::kStep;
    }
    if (shared > 0) AddValues<kCount, kFetch>(v, 0, 0, shared, decay, pages);
    const float one = 1;
    for (int i = 0; i < kCount; ++i) {
      if (seen[i] <= shared * T::kStep) continue;
      const float* factor = shared > 0 ? &one : &decay[i];
      AddValues<1, false>(v + i, i, shared, seen[i] / T::kStep, factor, pages);
      if (seen[i] % T::kStep != 0) AddHalfPair(v + i, i, seen[i] / T::kStep, pages);
    }
  }

  const std::byte* ValuesAt(const ChunkPages& pages, int step, int64_t channel) const {
    constexpr int kPageSteps = kBlockTokens / T::kStep;
    return pages.values[step / kPageSteps] +
           (step % kPageSteps * block_.head_dim + channel) * kLane;
  }

  // Steps [first, last) for kCount vectors from v on, whose p are those of the tile's from i on.
  template <int kCount, bool kFetch>
  void AddValues(int64_t v, int i, int first, int last, const float* decay,
                 const ChunkPages& pages) {
    int64_t channel = 0;
    for (; channel + 64 <= block_.head_dim; channel += 64) {
      AddChannels<kCount, 4, kFetch>(v, i, first, last, decay, pages, channel);
    }
    for (; channel < block_.head_dim; channel += 16) {
      AddChannels<kCount, 1, false>(v, i, first, last, decay, pages, channel);
    }
  }

  typename T::Vector LoadValues(const std::byte* p, int64_t channel) const {
    const int64_t rest = block_.head_dim - channel;
    return rest >= 16 ? T::Load(p) : LoadFirst<T>(p, rest * T::kStep);
  }

  template <int kCount, int kVectors, bool kFetch>
  void AddChannels(int64_t v, int i, int first, int last, const float* decay,
                   const ChunkPages& pages, int64_t channel) {
    F acc[kCount][kVectors];
    for (int n = 0; n < kCount; ++n) {
      const F factor = V::Set(decay[n]);
      for (int c = 0; c < kVectors; ++c)
        acc[n][c] = V::Mul(V::Load(Sums(v + n, channel, c)), factor);
    }
    for (int step = first; step < last; ++step) {
      const std::byte* p = ValuesAt(pages, step, channel);
      typename T::Vector values[kVectors];
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; ++c) {
        values[c] = kVectors > 1 ? T::Load(p + c * 16 * kLane) : LoadValues(p, channel);
        // As many lines as V has here, so that a whole chunk of K is fetched by the end.
        if constexpr (kFetch) {
          const int64_t line = channel / 64 * (kAttentionChunk / T::kStep) + step;
          __builtin_prefetch(next_.keys[c] + line * 64);
        }
      }
#pragma GCC unroll 8
      for (int n = 0; n < kCount; ++n) {
        const auto weight = T::Broadcast(Weights(i + n) + step * kLane);
#pragma GCC unroll 8
        for (int c = 0; c < kVectors; ++c) acc[n][c] = MultiplyAdd<V>(acc[n][c], weight, values[c]);
      }
    }
    for (int n = 0; n < kCount; ++n) {
      for (int c = 0; c < kVectors; ++c) V::Store(acc[n][c], Sums(v + n, channel, c));
    }
  }

  // The pair whose second position is beyond vector v's own: its bits there count as zero.
  void AddHalfPair(int64_t v, int i, int step, const ChunkPages& pages) {
    if constexpr (T::kStep == 2) {
      const auto weight = T::Broadcast(Weights(i) + step * kLane);
      for (int64_t channel = 0; channel < block_.head_dim; channel += 16) {
        const auto values = V::EvenOnly(LoadValues(ValuesAt(pages, step, channel), channel));
        const F acc = V::Load(Sums(v, channel, 0));
        V::Store(V::Dot(acc, weight, values), Sums(v, channel, 0));
      }
    }
  }

  void WriteOut(int64_t v) {
    std::byte* out = block_.out + Offset(v);
    const F weight = V::Set(state_.weights[v]);
    ForEachVector(block_.head_dim, [&](int64_t c, int lanes) {
      const F mean = V::Div(V::Load(Sums(v, c, 0)), weight);
      if constexpr (T::kBytes == 2) {
        StoreLanes<V>(mean, reinterpret_cast<uint16_t*>(out) + c, lanes);
      } else {
        StoreLanes<V>(mean, reinterpret_cast<float*>(out) + c, lanes);
      }
    });
  }

  float* Sums(int64_t v, int64_t channel, int vector) const {
    return state_.sums + v * state_.padded_dim + channel + 16 * vector;
  }
  static int Clamp16(int n) { return n < 0 ? 0 : n < 16 ? n : 16; }

  // Bytes of one lane's share of a step: a pair of bf16 or one f32, four in both.
  static constexpr int kLane = T::kStep * T::kBytes;

  AttentionBlock block_;
  AttentionState state_;
  ChunkPages next_;
};

template <typename V, typename T>
void AttentionEntry(const AttentionBlock& block) {
  AttentionKernel<V, T>(block).Run();
}

}  // namespace divisi
