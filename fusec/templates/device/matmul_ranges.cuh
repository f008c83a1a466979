// A product's tiles whose steps along K, end to end, are divided evenly among CTAs, so that all of
// them end together: each has the end of a tile, whole ones, and the beginning of another. A range
// has no fewer steps than a tile, so that a tile is in two ranges at most. Whoever comes second to a
// tile adds what the other has left: nobody waits, and a sum of two does not depend on who is second.
// `Config` is the struct at the top of the kernel.
#pragma once

#include "matmul_slices.cuh"
#include "proxy.cuh"

namespace fusec {

// What is done at a time: steps `first` to before `last` of a tile.
struct RangePart {
  int tile;
  int first;
  int last;

  // Of two parts the number of this one, in the order of K, and of the range that has the first.
  __device__ __forceinline__ int number() const { return first > 0 ? 1 : 0; }
  __device__ __forceinline__ int border() const { return static_cast<int>(blockIdx.x) - number(); }
  __device__ __forceinline__ bool is_whole(int steps) const { return first == 0 && last == steps; }
};

// Steps of all tiles from `begin` to before `end`, each tile of so many.
struct StepRange {
  int begin;
  int end;
  int steps;

  __device__ __forceinline__ RangePart part(int at) const {
    const int tile = at / steps;
    const int rest = end - tile * steps;
    const RangePart found = {tile, at - tile * steps, rest < steps ? rest : steps};
    // Without, ptxas has wgmma wait for sums that a part without steps would leave.
    __builtin_assume(found.first < found.last);
    return found;
  }
};

// That of this CTA, of as many tiles as CTAs or more.
__device__ __forceinline__ StepRange step_range(int tiles, int steps) {
  const i64 all = static_cast<i64>(tiles) * steps;
  return {static_cast<int>(all * blockIdx.x / gridDim.x),
          static_cast<int>(all * (blockIdx.x + 1) / gridDim.x), steps};
}

// The sums of a part lie where the stages of the next will. The warp that loads waits until all who
// multiply have their shares in registers.
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

// Zero, which the compiler does not know: addresses with it are computed anew for each part, where
// they would take registers beside all sums.
__device__ __forceinline__ int unknown_zero() {
  int zero = 0;
  asm volatile("" : "+r"(zero));
  return zero;
}

// All multiplying threads, with a part of a tile that two CTAs have: whether this one is second; then
// the share is that of both. `slices` and `arrived` are of the tile; `slot` is shared memory. The
// counter starts over for the next launch.
template <class Config>
__device__ __forceinline__ bool is_second(float4 (&share)[Config::kOwned], float4* slices,
                                          u32* arrived, u32* slot, int number) {
  named_barrier_sync<Config::kMultipliers>(1);  // all have read the slot before
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
    if (f % 8 == 0) asm volatile("" : : : "memory");  // few are on their way at a time
    share[f] = add(share[f], __ldcg(&other[f * Config::kMultipliers + threadIdx.x]));
  }
  return true;
}

}  // namespace fusec
