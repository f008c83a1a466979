// Reductions over a group of kWarps warps with its own row, while other groups of the block have
// theirs, and over the same group of every block of a cluster that shares the row (sm_90). Op is
// one of the combiners. Called by all threads of the groups, which all get the result. Each warp
// stores its partial result, and these are combined in the order of blocks and warps: 32 at a time,
// then in a tree. Partial results are in one of two alternating buffers of the group, `place`: when
// a warp writes to a buffer again, all have read it, since they have written to the other one.
#pragma once

#include "cluster.cuh"
#include "named_barrier.cuh"
#include "reduce.cuh"

namespace fusec {

// Converts a value to the words that are sent and stored in shared memory.
template <int kWords, class T>
__device__ __forceinline__ Vec<u32, kWords> to_part(const T& value) {
  static_assert(kWords == ShuffleWords<T>::kCount);
  const ShuffleWords<T> words(value);
  Vec<u32, kWords> part;
#pragma unroll
  for (int i = 0; i < kWords; ++i) part[i] = words.words[i];
  return part;
}

// Combines kParts contiguous partial results.
template <class Op, int kParts, class T, int kWords>
__device__ __forceinline__ T combine_parts(const Vec<u32, kWords>* parts) {
  const int lane = threadIdx.x % 32;
  T total = Op::identity();
#pragma unroll
  for (int first = 0; first < kParts; first += 32) {
    if (first + lane < kParts) {
      const Vec<u32, kWords> part = parts[first + lane];
      T value;
      memcpy(&value, &part, sizeof(T));
      total = first == 0 ? value : Op::combine(total, value);
    }
  }
  return warp_reduce<Op>(total);
}

// Reduces within a block. Places are 2 * group and 2 * group + 1; group g has named barrier g + 1.
template <class Op, int kWarps, class T, int kWords>
__device__ __forceinline__ T group_reduce(T value, Vec<u32, kWords>* parts, int place) {
  const int warp = threadIdx.x / 32 % kWarps;
  value = warp_reduce<Op>(value);
  if (threadIdx.x % 32 == 0) parts[place * kWarps + warp] = to_part<kWords>(value);
  named_barrier_sync<kWarps * 32>(place / 2 + 1);
  return combine_parts<Op, kWarps, T>(parts + place * kWarps);
}

// Reduces within a cluster, in its block `rank`: every warp sends its partial result to every
// block. arrived: a barrier per place, with one arrival; parity: that of its phase, which flips
// with every use.
template <class Op, int kWarps, int kCluster, class T, int kWords>
__device__ __forceinline__ T cluster_reduce(T value, Vec<u32, kWords>* parts, Barrier* arrived,
                                            int place, u32 parity, int rank) {
  constexpr int kParts = kCluster * kWarps;
  const int warp = threadIdx.x / 32 % kWarps;
  const int lane = threadIdx.x % 32;
  value = warp_reduce<Op>(value);
  if (warp == 0 && lane == 0) arrived[place].arrive_expect_tx(kParts * kWords * 4);
  if (lane < kCluster) {
    cluster_send(parts + (place * kParts + rank * kWarps + warp), to_part<kWords>(value),
                 &arrived[place], lane);
  }
  arrived[place].wait_cluster(parity);
  return combine_parts<Op, kParts, T>(parts + place * kParts);
}

}  // namespace fusec
