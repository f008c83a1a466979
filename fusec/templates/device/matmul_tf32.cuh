// Main loop of a GEMM with Tf32 operands (10 mantissa bits), as in matmul_mma.cuh. `Config` is the
// struct at the top of the kernel. All threads of the CTA call these functions.
#pragma once

#include "matmul_mma.cuh"
#include "tf32.cuh"

namespace fusec {

// Loads the 16 x 8 fragment of A at (row, depth) of a tile of floats, as mma_1688 expects it.
// K-major: four floats are one row of ldmatrix; otherwise single floats are read.
template <int kPitch, bool kKMajor>
__device__ __forceinline__ void load_tf32_rows(u32 (&a)[4], const float* tile, int row, int depth) {
  const int lane = threadIdx.x % 32;
  if constexpr (kKMajor) {
    ldmatrix_x4(a, tile + (row + lane % 16) * kPitch + depth + lane / 16 * 4);
  } else {
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const int k = depth + lane % 4 + p / 2 * 4;
      a[p] = __float_as_uint(tile[k * kPitch + row + lane / 4 + p % 2 * 8]);
    }
  }
#pragma unroll
  for (int p = 0; p < 4; ++p) a[p] = tf32_bits(__uint_as_float(a[p]));
}

// Loads the 8 x 16 fragment of B at (depth, column), as two mma_1688 expect it.
template <int kPitch, bool kKMajor>
__device__ __forceinline__ void load_tf32_columns(u32 (&b)[4], const float* tile, int column,
                                                  int depth) {
  const int lane = threadIdx.x % 32;
  if constexpr (kKMajor) {
    const int own = column + lane % 8 + lane / 16 * 8;
    ldmatrix_x4(b, tile + own * kPitch + depth + lane / 8 % 2 * 4);
  } else {
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const int k = depth + lane % 4 + p % 2 * 4;
      b[p] = __float_as_uint(tile[k * kPitch + column + lane / 4 + p / 2 * 8]);
    }
  }
#pragma unroll
  for (int p = 0; p < 4; ++p) b[p] = tf32_bits(__uint_as_float(b[p]));
}

// How the operands of a stage are multiplied (matmul_mma.cuh): with mma_1688.
struct MultiplyTf32 {
  template <class Config>
  __device__ static __forceinline__ void multiply_step(
      float (&accumulators)[Config::kWarpM / 16][Config::kWarpN / 8][4], const float* a_tile,
      const float* b_tile, int row, int column) {
#pragma unroll
    for (int depth = 0; depth < Config::kTileK; depth += 8) {
      u32 b[Config::kWarpN / 8][2];
#pragma unroll
      for (int j = 0; j < Config::kWarpN / 8; j += 2) {
        u32 pieces[4];
        load_tf32_columns<Config::kBPitch, Config::kBKMajor>(pieces, b_tile, column + 8 * j, depth);
#pragma unroll
        for (int p = 0; p < 4; ++p) b[j + p / 2][p % 2] = pieces[p];
      }
#pragma unroll
      for (int i = 0; i < Config::kWarpM / 16; ++i) {
        u32 a[4];
        load_tf32_rows<Config::kAPitch, Config::kAKMajor>(a, a_tile, row + 16 * i, depth);
#pragma unroll
        for (int j = 0; j < Config::kWarpN / 8; ++j) mma_1688(accumulators[i][j], a, b[j]);
      }
    }
  }
};

// accumulators += the products of all `depths` elements of K, as multiply_steps (matmul_mma.cuh).
template <class Config, class A, class B, class Index>
__device__ __forceinline__ void multiply_tf32_steps(
    float (&accumulators)[Config::kWarpM / 16][Config::kWarpN / 8][4], unsigned char* shared,
    const A& a, const B& b, Index depths, int row, int column) {
  multiply_steps<Config, MultiplyTf32>(accumulators, shared, a, b, depths, row, column);
}

}  // namespace fusec
