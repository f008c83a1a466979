// Groups of rows (or of elements of K) of a grouped GEMM, defined by a buffer of nondecreasing end
// offsets. Offsets are clamped, so invalid ones cause wrong results but no out-of-bounds access.
#pragma once

#include "shuffle.cuh"

namespace fusec {

// A range of the grouped axis: elements [first, end) of group `index`.
template <class Index>
struct MatmulGroup {
  int index;
  Index first;
  Index end;
};

// Returns the end of group g on an axis of `extent` elements; 0 for g < 0.
template <class Index, class E>
__device__ __forceinline__ Index group_end(const E* ends, i64 stride, int g, Index extent) {
  if (g < 0) return 0;
  const i64 end = static_cast<i64>(ends[g * stride]);
  return end < 0 ? 0 : end < extent ? static_cast<Index>(end) : extent;
}

// Returns all elements of group g.
template <class Index, class E>
__device__ __forceinline__ MatmulGroup<Index> group_elements(const E* ends, i64 stride, int g,
                                                             Index extent) {
  const Index first = group_end(ends, stride, g - 1, extent);
  const Index end = group_end(ends, stride, g, extent);
  return {g, first, first < end ? end : first};
}

// Returns the rows of tile number `tile`, kTile rows high, where each group starts a new tile. Rows
// after the last group form group number `groups`; a larger group number means there is no such
// tile. All lanes of a warp call it; each examines one group in 32.
template <int kTile, class Index, class E>
__device__ __forceinline__ MatmulGroup<Index> group_of_tile(const E* ends, i64 stride, int groups,
                                                            Index extent, int tile) {
  const int lane = threadIdx.x % 32;
  int before = 0;
  for (int base = 0; base <= groups; base += 32) {
    const int g = base + lane;
    Index first = 0;
    Index end = 0;
    if (g <= groups) {
      first = group_end(ends, stride, g - 1, extent);
      end = g < groups ? group_end(ends, stride, g, extent) : extent;
    }
    const int own = first < end ? static_cast<int>((end - first + kTile - 1) / kTile) : 0;
    int through = own;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int added = shuffle_up(through, distance);
      if (lane >= distance) through += added;
    }
    const u32 reached = __ballot_sync(kFullWarp, tile < before + through);
    if (reached != 0) {
      const int holder = __ffs(static_cast<int>(reached)) - 1;
      const int skipped = tile - before - shuffle_from(through - own, holder);
      first = shuffle_from(first, holder) + static_cast<Index>(skipped) * kTile;
      return {base + holder, first, shuffle_from(end, holder)};
    }
    before += shuffle_from(through, 31);
  }
  return {groups + 1, 0, 0};
}

}  // namespace fusec
