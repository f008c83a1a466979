// Sums over the GPUs of one host as a reduce-scatter and an all-gather in one kernel: each GPU adds
// one slice of the elements, in order of rank index, and pushes the result to all others. A GPU
// sends 2 (ranks - 1) / ranks times its elements, with push_sum (ranks - 1) times. Mailboxes and
// turns are those of push_sum.cuh. A slot has parts of a slice in its first half and results in its
// second; flags of results follow those of parts.
#pragma once

#include "push_sum.cuh"

namespace fusec {

// y = sum of x over all ranks, accumulated in f32 and rounded once; y may be x. Called by all
// threads of all `blocks` blocks, on all ranks. While a chunk is pushed, the previous one is added
// and the results of the one before that are copied. Slots hold twice the vectors of a slice.
template <class T>
__device__ __forceinline__ void push_slices(const T* x, T* y, const PushSum& how, int block,
                                            int blocks) {
  using Vector = PushedVector<T>;
  const PushedSum<T> sum(x, y, how, block, blocks);
  const PushedFlags parts(how, block, 0), results(how, block, 1);
  const int rank = how.rank, last = blockDim.x - 1;
  const i64 slice = (sum.vectors + how.ranks - 1) / how.ranks;
  const i64 results_first = how.capacity / sizeof(PushedWords) / 2;
  const i32 chunks = sum.chunks(slice);
  const u64 base = sum.turn * kMostChunks;

  for (i32 c = 0; c <= chunks + 1; ++c) {
    if (c < chunks) {
      sum.for_chunk(slice, c, [&](i64 v) {
        for (int hop = 1; hop < how.ranks; ++hop) {
          const int owner = (rank + hop) % how.ranks;
          const i64 whole = owner * slice + v;
          if (whole < sum.vectors) sum.data(owner, rank)[v] = sum.load(whole).words;
        }
      });
      parts.signal(base + c + 1);
      if (c == 0 && threadIdx.x == last) sum.finish_turn(blocks);
    }
    if (c >= 1 && c <= chunks) {
      parts.wait(base + c);
      sum.for_chunk(slice, c - 1, [&](i64 v) {
        const i64 whole = rank * slice + v;
        if (whole >= sum.vectors) return;
        const Vector total = sum.added(whole, [&](int each) {
          Vector part;
          part.words = sum.data(rank, each)[v];
          return part;
        });
        total.store(y, whole, how.count, sum.stores_aligned);
        for (int hop = 1; hop < how.ranks; ++hop) {
          const int other = (rank + hop) % how.ranks;
          sum.data(other, rank)[results_first + v] = total.words;
        }
      });
      results.signal(base + c);
    }
    if (c >= 2) {
      results.wait(base + c - 1);
      sum.for_chunk(slice, c - 2, [&](i64 v) {
        for (int owner = 0; owner < how.ranks; ++owner) {
          const i64 whole = owner * slice + v;
          if (owner == rank || whole >= sum.vectors) continue;
          Vector total;
          total.words = sum.data(rank, owner)[results_first + v];
          total.store(y, whole, how.count, sum.stores_aligned);
        }
      });
    }
  }
}

}  // namespace fusec
