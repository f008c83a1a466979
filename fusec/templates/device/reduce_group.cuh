// Reductions over a group of kWarps warps that has a row of its own, while other groups of the
// block have theirs, and over the same group of every block of a cluster that shares the row
// (sm_90). Op is one of the combiners. All threads of the groups call them together and all get the
// result. Each warp leaves its part, and the parts are combined in the order of blocks and warps:
// 32 at a time, then in a tree. Partial results are in one of two alternating buffers of
// the group, `place`: when a warp writes to a buffer again, all have read it, since they have
// written to the other one.
#pragma once

#include "cluster.cuh"
#include "named_barrier.cuh"
#include "reduce.cuh"

namespace fusec {

// A value as the words that travel and lie in shared memory.
template <int kWords, class T>
__device__ __forceinline__ Vec<u32, kWords> to_part(const T& value) {
  static_assert(kWords == ShuffleWords<T>::kCount);
  const ShuffleWords<T> words(value);
  Vec<u32, kWords> part;
#pragma unroll
  for (int i = 0; i < kWords; ++i) part[i] = words.words[i];
  return part;
}

// The combination of kParts parts, which lie one after the other.
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

// Within a block. Places are 2 * group and 2 * group + 1; groups have the named barriers from 1 on.
template <class Op, int kWarps, class T, int kWords>
__device__ __forceinline__ T group_reduce(T value, Vec<u32, kWords>* parts, int place) {
  const int warp = threadIdx.x / 32 % kWarps;
  value = warp_reduce<Op>(value);
  if (threadIdx.x % 32 == 0) parts[place * kWarps + warp] = to_part<kWords>(value);
  named_barrier_sync<kWarps * 32>(place / 2 + 1);
  return combine_parts<Op, kWarps, T>(parts + place * kWarps);
}

// Within a cluster, for its block `rank`: every warp sends its partial result to every block.
// arrived: a barrier for each place, of one arrival; parity: that of its phase, which turns with
// every use.
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
