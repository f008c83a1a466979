// The last wave of a product's tiles, where fewer are left than there are clusters: each is divided
// along K among clusters that have nothing else to do. Every cluster leaves its sums in a work
// buffer, and whichever arrives last adds all up in the order of K: nobody waits, and the sum does
// not depend on who is last. `Config` is the struct at the top of the kernel.
#pragma once

#include "grid.cuh"
#include "named_barrier.cuh"
#include "vector.cuh"

namespace fusec {

// Tiles in all, or groups of those that a cluster takes together: how many are whole, and what
// there is to do in all, with the parts of the others.
struct TileUnits {
  int whole;
  int count;
};

// What is done at a time: steps `first` to before `last` of a tile; `part` counts the parts of all
// divided tiles, -1 of a whole one.
struct TileUnit {
  int tile;
  int part;
  int first;
  int last;
};

// The units of `tiles` on so many clusters, kParts of each that is divided. Where the parts of a
// wave would not fit into it, or have no step, all are whole.
template <int kParts>
__device__ __forceinline__ TileUnits tile_units(int tiles, int clusters, int steps) {
  const int left = tiles % clusters;
  if (left * kParts > clusters || steps < kParts) return {tiles, tiles};
  return {tiles - left, tiles - left + left * kParts};
}

template <int kParts>
__device__ __forceinline__ TileUnit tile_unit(int index, const TileUnits& units, int steps) {
  TileUnit unit = {index, -1, 0, steps};
  if (index >= units.whole) {
    const int part = index - units.whole;
    const int number = part % kParts;
    unit = {units.whole + part / kParts, part, number * steps / kParts,
            (number + 1) * steps / kParts};
  }
  // Without, ptxas has wgmma wait for sums that a tile without steps would leave.
  __builtin_assume(unit.first < unit.last);
  return unit;
}

inline constexpr int kPartsBarrier = 3;  // named, of the threads that sum parts of a tile

// kThreads threads that have summed a part of a tile: whether all parts of it are there, this one
// last; then `sums` are those of all. `slices` and `arrived` are of the tile; `slot` is
// shared memory. The counter starts over for the next launch.
template <int kParts, int kThreads, int kSums>
__device__ __forceinline__ bool sum_parts(float (&sums)[kSums], float* slices, u32* arrived,
                                          u32* slot, int part) {
  static_assert(kSums % 4 == 0);
  constexpr int kSlice = kSums * kThreads;
  const int own = threadIdx.x % kThreads * 4;
#pragma unroll
  for (int i = 0; i < kSums; i += 4) {
    const Vec<float, 4> quad = {sums[i], sums[i + 1], sums[i + 2], sums[i + 3]};
    store(slices + part * kSlice + i * kThreads + own, quad);
  }
  named_barrier_sync<kThreads>(kPartsBarrier);
  if (threadIdx.x % kThreads == 0) *slot = count_and_wrap(arrived, kParts);
  named_barrier_sync<kThreads>(kPartsBarrier);
  if (*slot != kParts - 1) return false;
#pragma unroll
  for (int i = 0; i < kSums; ++i) sums[i] = 0.0f;
  for (int each = 0; each < kParts; ++each) {
    const float* const slice = slices + each * kSlice + own;
#pragma unroll
    for (int i = 0; i < kSums; i += 4) {
      if (i % 32 == 0) asm volatile("" : : : "memory");  // few are on their way at a time
      const float4 quad = __ldcg(reinterpret_cast<const float4*>(slice + i * kThreads));
      sums[i] += quad.x;
      sums[i + 1] += quad.y;
      sums[i + 2] += quad.z;
      sums[i + 3] += quad.w;
    }
  }
  return true;
}

}  // namespace fusec
