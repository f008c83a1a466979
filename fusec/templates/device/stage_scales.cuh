// Factors of the partial sums of one stage of an fp8 GEMM when they are added to the accumulators
// (matmul_promoted.cuh): scales that vary along K, for the 128 elements of the stage, or none.
#pragma once

#include "block_scales.cuh"

namespace fusec {

// How many neighbouring rows share a scale; 0 without block scales. Tiles start at multiples of
// their extent.
template <class Scales>
struct ScaledRows {
  static constexpr int kRows = 0;
};
template <int kEach, class S, class Index>
struct ScaledRows<BlockScales<kEach, S, Index>> {
  static constexpr int kRows = kEach;
};

__host__ __device__ constexpr int common_divisor(int a, int b) {
  return b == 0 ? a : common_divisor(b, a % b);
}

// A thread's factors of the sums of a stage. Without scales there are none.
template <int kBlocks, int kColumns, class... Scales>
struct StageScales {
  __device__ __forceinline__ void load(int) {}
  __device__ __forceinline__ float scaled(float sum, int, int) const { return sum; }
};

// The scales of the thread's rows of wgmma, and of its columns, one for as many as share it.
template <int kBlocks, int kColumns, class Rows, class Columns>
struct StageScales<kBlocks, kColumns, Rows, Columns> {
  static constexpr int kShared = common_divisor(kColumns, ScaledRows<Columns>::kRows);
  static constexpr bool kEach = kShared < 8;
  float rows[kBlocks][2];
  float columns[kEach ? kColumns / 4 : kColumns / kShared];

  __device__ __forceinline__ void load(int step, const Rows& of_rows, const Columns& of_columns) {
    const int lane = threadIdx.x % 32;
    const int own = threadIdx.x / 128 * (kBlocks * 64) + threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < 2 * kBlocks; ++i) {
      rows[i / 2][i % 2] = of_rows.at(own + i / 2 * 64 + i % 2 * 8, step);
    }
#pragma unroll
    for (int i = 0; i < (kEach ? kColumns / 4 : kColumns / kShared); ++i) {
      columns[i] = of_columns.at(kEach ? i / 2 * 8 + lane % 4 * 2 + i % 2 : i * kShared, step);
    }
  }

  // Returns the i-th sum of a block, scaled.
  __device__ __forceinline__ float scaled(float sum, int block, int i) const {
    return sum *
           (rows[block][i / 2 % 2] * columns[kEach ? i / 4 * 2 + i % 2 : i / 4 * 8 / kShared]);
  }
};

}  // namespace fusec
