// The exclusive prefix of a tile of a row whose tiles are scanned by different blocks, from the
// totals of the lower tiles, of groups of 32 tiles, and of groups of 32 groups. Every total is
// written once and then flagged, and they are combined in a fixed order, so results are
// reproducible. Blocks take their tiles in ticket order: the blocks of lower tiles are running.
#pragma once

#include "grid.cuh"
#include "reduce.cuh"

namespace fusec {

inline constexpr int kGroup = 32;

// Returns the number of totals, and of flags, of a row of `tiles` tiles.
__host__ __device__ constexpr int totals_of_row(int tiles) {
  const int groups = (tiles + kGroup - 1) / kGroup;
  return tiles + groups + (groups + kGroup - 1) / kGroup;
}

// Stores a total for the blocks of higher tiles. Only lane 0 does so.
template <class T>
__device__ __forceinline__ void store_total(T* totals, u32* flags, int place, T total) {
  if (threadIdx.x % 32 != 0) return;
  totals[place] = total;
  store_release(flags + place, 1);
}

// Waits for up to 32 totals and combines them. Called by one warp.
template <class Op, class T>
__device__ __forceinline__ T combine_totals(const T* totals, const u32* flags, int first,
                                            int count) {
  const int lane = threadIdx.x % 32;
  T total = Op::identity();
  if (lane < count) {
    spin_until(flags + first + lane, 1);
    total = totals[first + lane];
  }
  return warp_reduce<Op>(total);
}

// Returns the exclusive prefix of tile `tile` in its row; `total` is the tile's own total. Called
// by all lanes of one warp, which all get the result.
template <class Op, class T>
__device__ __forceinline__ T before_tile(T* totals, u32* flags, int tiles, int tile, T total) {
  const int group = tile / kGroup;
  const int above = group / kGroup;
  const int groups_start = tiles;
  const int above_start = tiles + (tiles + kGroup - 1) / kGroup;
  store_total(totals, flags, tile, total);
  const T in_group = combine_totals<Op>(totals, flags, group * kGroup, tile % kGroup);
  const bool ends_group = tile % kGroup == kGroup - 1;
  const T group_total = Op::combine(in_group, total);
  if (ends_group) store_total(totals, flags, groups_start + group, group_total);
  const T in_above =
      combine_totals<Op>(totals, flags, groups_start + above * kGroup, group % kGroup);
  if (ends_group && group % kGroup == kGroup - 1) {
    store_total(totals, flags, above_start + above, Op::combine(in_above, group_total));
  }
  T before = Op::identity();
  for (int first = 0; first < above; first += kGroup) {
    const int count = above - first < kGroup ? above - first : kGroup;
    before = Op::combine(before, combine_totals<Op>(totals, flags, above_start + first, count));
  }
  return Op::combine(Op::combine(before, in_above), in_group);
}

}  // namespace fusec
