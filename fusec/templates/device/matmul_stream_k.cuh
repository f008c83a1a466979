// Stream-K: the K steps of all tiles, concatenated, are divided evenly among the CTAs, so that all
// of them finish at the same time. A CTA's range consists of the end of one tile, whole tiles, and
// the start of another. No range is shorter than a tile, so a tile spans at most two ranges. The
// CTA that finishes a tile second adds the partial sums that the first one stored. No CTA waits for
// another, and a sum of two terms does not depend on their order. `Config` is the struct at the top
// of the kernel.
#pragma once

#include "matmul_slices.cuh"
#include "proxy.cuh"

namespace fusec {

// A unit of work: K steps [first, last) of a tile.
struct RangePart {
  int tile;
  int first;
  int last;

  // For a tile split in two: the index of this part along K, and the range that has the first part.
  __device__ __forceinline__ int number() const { return first > 0 ? 1 : 0; }
  __device__ __forceinline__ int border() const { return static_cast<int>(blockIdx.x) - number(); }
  __device__ __forceinline__ bool is_whole(int steps) const { return first == 0 && last == steps; }
};

// The steps [begin, end) in the concatenated steps of all tiles; each tile has `steps` of them.
struct StepRange {
  int begin;
  int end;
  int steps;

  __device__ __forceinline__ RangePart part(int at) const {
    const int tile = at / steps;
    const int rest = end - tile * steps;
    const RangePart found = {tile, at - tile * steps, rest < steps ? rest : steps};
    // Without this, ptxas inserts waits on wgmma for the accumulators of a part without steps.
    __builtin_assume(found.first < found.last);
    return found;
  }
};

// Returns the range of this CTA. There are at least as many tiles as CTAs.
__device__ __forceinline__ StepRange step_range(int tiles, int steps) {
  const i64 all = static_cast<i64>(tiles) * steps;
  return {static_cast<int>(all * blockIdx.x / gridDim.x),
          static_cast<int>(all * (blockIdx.x + 1) / gridDim.x), steps};
}

// The partial sums of a part reuse the shared memory of the next part's stages. The producer warp
// waits until all multiplying threads hold their shares in registers.
inline constexpr int kRingIsFree = 2;  // a named barrier
template <class Config>
__device__ __forceinline__ void wait_for_ring() {
  named_barrier_sync<Config::kMultipliers + 32>(kRingIsFree);
}
template <class Config>
__device__ __forceinline__ void free_ring() {
  fence_proxy_async_shared_cta();
  named_barrier_arrive<Config::kMultipliers + 32>(kRingIsFree);
}

// Zero, opaque to the compiler: addresses that depend on it are recomputed for each part rather
// than kept in registers next to the accumulators.
__device__ __forceinline__ int unknown_zero() {
  int zero = 0;
  asm volatile("" : "+r"(zero));
  return zero;
}

// Combines a tile that two CTAs share. Returns whether this CTA is the second to finish, in which
// case `share` is the sum of both. `slices` and `arrived` belong to the tile; `slot` is in shared
// memory. The counter is reset for the next launch. Called by all multiplying threads.
template <class Config>
__device__ __forceinline__ bool is_second(float4 (&share)[Config::kOwned], float4* slices,
                                          u32* arrived, u32* slot, int number) {
  named_barrier_sync<Config::kMultipliers>(1);  // all threads have read the slot
  if (threadIdx.x == 0) *slot = load_acquire(arrived);
  named_barrier_sync<Config::kMultipliers>(1);
  if (*slot == 0) {
    store_slice<Config>(slices + number * Config::kSlab, share);
    if (!is_last_slice<Config>(arrived, slot, 2)) return false;
  } else if (threadIdx.x == 0) {
    *arrived = 0;
  }
  const float4* const other = slices + (1 - number) * Config::kSlab;
#pragma unroll
  for (int f = 0; f < Config::kOwned; ++f) {
    if (f % 8 == 0) asm volatile("" : : : "memory");  // limits the loads in flight
    share[f] = add(share[f], __ldcg(&other[f * Config::kMultipliers + threadIdx.x]));
  }
  return true;
}

}  // namespace fusec
