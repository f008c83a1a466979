// The last, partial wave of a persistent GEMM: if fewer tiles are left than clusters, each is split
// along K among the clusters that would otherwise be idle. Every cluster stores its partial sums to
// a workspace, and the last one to arrive adds them in the order of K. No cluster waits for
// another, and the sum does not depend on the order of arrival. `Config` is the struct at the top
// of the kernel.
#pragma once

#include "grid.cuh"
#include "named_barrier.cuh"
#include "vector.cuh"

namespace fusec {

// Counts tiles, or groups of tiles that a cluster processes together: those that are not split, and
// all units of work, including the parts of split tiles.
struct TileUnits {
  int whole;
  int count;
};

// A unit of work: K steps [first, last) of a tile. `part` numbers the parts of all split tiles; it
// is -1 for a whole tile.
struct TileUnit {
  int tile;
  int part;
  int first;
  int last;
};

// Divides `tiles` tiles among `clusters` clusters, kParts units per split tile. No tile is split if
// the parts would not fit in one wave or a part would have no step.
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
  // Without this, ptxas inserts waits on wgmma for the accumulators of a tile without steps.
  __builtin_assume(unit.first < unit.last);
  return unit;
}

inline constexpr int kPartsBarrier = 3;  // of the threads that sum the parts of a tile

// Combines the parts of a tile. Returns whether this was the last part to arrive, in which case
// `accumulators` holds the total. `slices` and `arrived` belong to the tile; `slot` is in shared
// memory. The counter is reset for the next launch. Called by kThreads threads.
template <int kParts, int kThreads, int kSums>
__device__ __forceinline__ bool sum_parts(float (&accumulators)[kSums], float* slices, u32* arrived,
                                          u32* slot, int part) {
  static_assert(kSums % 4 == 0);
  constexpr int kSlice = kSums * kThreads;
  const int own = threadIdx.x % kThreads * 4;
#pragma unroll
  for (int i = 0; i < kSums; i += 4) {
    const Vec<float, 4> quad = {accumulators[i], accumulators[i + 1], accumulators[i + 2],
                                accumulators[i + 3]};
    store(slices + part * kSlice + i * kThreads + own, quad);
  }
  named_barrier_sync<kThreads>(kPartsBarrier);
  if (threadIdx.x % kThreads == 0) *slot = count_and_wrap(arrived, kParts);
  named_barrier_sync<kThreads>(kPartsBarrier);
  if (*slot != kParts - 1) return false;
#pragma unroll
  for (int i = 0; i < kSums; ++i) accumulators[i] = 0.0f;
  for (int each = 0; each < kParts; ++each) {
    const float* const slice = slices + each * kSlice + own;
#pragma unroll
    for (int i = 0; i < kSums; i += 4) {
      if (i % 32 == 0) asm volatile("" : : : "memory");  // limits the loads in flight
      const float4 quad = __ldcg(reinterpret_cast<const float4*>(slice + i * kThreads));
      accumulators[i] += quad.x;
      accumulators[i + 1] += quad.y;
      accumulators[i + 2] += quad.z;
      accumulators[i + 3] += quad.w;
    }
  }
  return true;
}

}  // namespace fusec
