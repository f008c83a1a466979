// Reductions over a group of kWarps warps that has a row of its own, while other groups of the block
// have theirs, and over the same group of every block of a cluster that shares the row (sm_90). Op is
// one of the combiners. All threads of the groups call them together and all get the result. Each
// warp leaves its part, and the parts are combined in the order of blocks and warps: 32 at a time,
// then in a tree. Parts lie at a `place` of the group's, one of two in turns: who writes to a place
// again knows that all have read what was there, since they have left parts at the other one.
#pragma once

#include "cluster.cuh"
#include "named_barrier.cuh"
#include "reduce.cuh"

namespace fusec {

// The combination of kParts parts, which lie one after the other.
template <class Op, int kParts, class T>
__device__ __forceinline__ T combine_parts(const u32* parts) {
  constexpr int kWords = ShuffleWords<T>::kCount;
  const int lane = threadIdx.x % 32;
  T total = Op::identity();
#pragma unroll
  for (int first = 0; first < kParts; first += 32) {
    if (first + lane < kParts) {
      ShuffleWords<T> words(total);
#pragma unroll
      for (int i = 0; i < kWords; ++i) words.words[i] = parts[(first + lane) * kWords + i];
      total = first == 0 ? words.value() : Op::combine(total, words.value());
    }
  }
  return warp_reduce<Op>(total);
}

// Within a block. Places are 2 * group and 2 * group + 1; groups have the named barriers from 1 on.
template <class Op, int kWarps, class T>
__device__ __forceinline__ T group_reduce(T value, u32* parts, int place) {
  constexpr int kWords = ShuffleWords<T>::kCount;
  u32* own = parts + place * kWarps * kWords;
  const int warp = threadIdx.x / 32 % kWarps;
  const ShuffleWords<T> words(warp_reduce<Op>(value));
  if (threadIdx.x % 32 == 0) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) own[warp * kWords + i] = words.words[i];
  }
  named_barrier_sync<kWarps * 32>(place / 2 + 1);
  return combine_parts<Op, kWarps, T>(own);
}

// Within a cluster, of which this is block `rank`: every warp sends its part to every block. arrived:
// a barrier for each place, of one arrival; parity: that of its phase, which turns with every use.
template <class Op, int kWarps, int kCluster, class T>
__device__ __forceinline__ T cluster_reduce(T value, u32* parts, Barrier* arrived, int place,
                                            u32 parity, u32 rank) {
  constexpr int kWords = ShuffleWords<T>::kCount;
  constexpr int kParts = kCluster * kWarps;
  u32* own = parts + place * kParts * kWords;
  const int warp = threadIdx.x / 32 % kWarps;
  const u32 lane = threadIdx.x % 32;
  const ShuffleWords<T> words(warp_reduce<Op>(value));
  if (warp == 0 && lane == 0) arrived[place].arrive_expect_tx(kParts * kWords * 4);
  if (lane < kCluster) {
    cluster_send(own + (rank * kWarps + warp) * kWords, words.words, &arrived[place], lane);
  }
  arrived[place].wait_cluster(parity);
  return combine_parts<Op, kParts, T>(own);
}

}  // namespace fusec
