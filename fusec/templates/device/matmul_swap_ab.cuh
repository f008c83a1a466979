// Visits the accumulators of a tile with swapped operands in groups of neighbouring columns.
// Columns of B are the rows of wgmma, so a lane holds two neighbouring rows of columns r and r + 8
// of the result. `Config` is the struct at the top of the kernel.
#pragma once

#include "shuffle.cuh"
#include "vector.cuh"

namespace fusec {

// Permutes v: v[i] = old v[i ^ bits].
__device__ __forceinline__ void permute_quad(float (&v)[4], int bits) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool swaps = (bits & bit) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & bit) != 0) continue;
      const float low = v[i];
      v[i] = swaps ? v[i + bit] : low;
      v[i + bit] = swaps ? low : v[i + bit];
    }
  }
}

// Transposes an 8 x 16 block across a warp: before, v[2 h + e] of lane 4 g + q is (row 2 q + e,
// column g + 8 h); afterwards, v[i] is (row g, column 4 q + i). Each shuffle moves one element per
// lane.
__device__ __forceinline__ void transpose_block(float (&v)[4]) {
  const int lane = threadIdx.x % 32;
  const int row = lane / 4;
  const int quad = lane % 4;
  const int wanted = quad / 2 * 2 + row % 2;  // the index of this lane's row in other lanes
  permute_quad(v, row % 4);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[i] = shuffle_from(v[i], (quad % 2 * 4 + (i ^ wanted)) * 4 + row / 2);
  }
  permute_quad(v, wanted);
}

// Multiplying thread: calls visit(row, column, acc) for all accumulators of the warp, kWidth
// neighbouring columns at a time; columns are relative to the warp's first one.
template <class Config, int kWidth, class Visit>
__device__ __forceinline__ void visit_swap_ab(const float (&accumulators)[Config::kAccumulators],
                                              const Visit& visit) {
  const int lane = threadIdx.x % 32;
  constexpr int kBlockAccumulators = Config::kTileM / 2;
#pragma unroll
  for (int i = 0; i < Config::kAccumulators; i += 4) {
    float quad[4] = {accumulators[i], accumulators[i + 1], accumulators[i + 2],
                     accumulators[i + 3]};
    transpose_block(quad);
#pragma unroll
    for (int j = 0; j < 4; j += kWidth) {
      Vec<float, kWidth> acc;
#pragma unroll
      for (int e = 0; e < kWidth; ++e) acc[e] = quad[j + e];
      visit(i % kBlockAccumulators / 4 * 8 + lane / 4,
            i / kBlockAccumulators * 64 + lane % 4 * 4 + j, acc);
    }
  }
}

}  // namespace fusec
