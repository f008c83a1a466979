// The sums of a tile whose operands are swapped, given out as neighbours of one row: B's columns
// are the rows of wgmma, which leaves a lane two neighbouring rows of the result in two columns,
// eight apart. `Config` is the struct at the top of the kernel.
#pragma once

#include "shuffle.cuh"
#include "vector.cuh"

namespace fusec {

// v[i] becomes what v[i ^ bits] was.
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

// One warp: v[2 h + e] of lane 4 g + q is row 2 q + e and column g + 8 h of a block of 8 x 16;
// after it, v[i] is row g and column 4 q + i. Each shuffle takes one element of every lane.
__device__ __forceinline__ void transpose_block(float (&v)[4]) {
  const int lane = threadIdx.x % 32;
  const int row = lane / 4;
  const int quad = lane % 4;
  const int wanted = quad / 2 * 2 + row % 2;  // which element of others has this lane's row
  permute_quad(v, row % 4);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[i] = shuffle_from(v[i], (quad % 2 * 4 + (i ^ wanted)) * 4 + row / 2);
  }
  permute_quad(v, wanted);
}

// A multiplying thread: visit(row, column, acc) for all sums of a warp, kWidth neighbouring columns
// at a time; columns are counted from the first one of the warp.
template <class Config, int kWidth, class Visit>
__device__ __forceinline__ void visit_swap_ab(const float (&sums)[Config::kSumsOwn],
                                              const Visit& visit) {
  const int lane = threadIdx.x % 32;
  constexpr int kBlockSums = Config::kTileM / 2;
#pragma unroll
  for (int i = 0; i < Config::kSumsOwn; i += 4) {
    float quad[4] = {sums[i], sums[i + 1], sums[i + 2], sums[i + 3]};
    transpose_block(quad);
#pragma unroll
    for (int j = 0; j < 4; j += kWidth) {
      Vec<float, kWidth> acc;
#pragma unroll
      for (int e = 0; e < kWidth; ++e) acc[e] = quad[j + e];
      visit(i % kBlockSums / 4 * 8 + lane / 4, i / kBlockSums * 64 + lane % 4 * 4 + j, acc);
    }
  }
}

}  // namespace fusec
