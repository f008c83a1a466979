// The main loop of products of floats of which 10 bits behind the point count, as matmul_mma.cuh has
// it for halves. `Config` is the struct at the top of the kernel. All threads of the block call
// these.
#pragma once

#include "matmul_mma.cuh"
#include "tf32.cuh"

namespace fusec {

// The 16 x 8 piece of A from `row` and `depth` of a tile of floats on, as mma_1688 takes it. Along
// K four floats are a row of what ldmatrix brings; across K they are read one by one.
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

// The 8 x 16 piece of B from `depth` and `column` on, as two mma_1688 take it.
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

// sums += the products of one stage, for the part of the tile from `row` and `column` on.
template <class Config>
__device__ __forceinline__ void multiply_tf32_step(
    float (&sums)[Config::kWarpM / 16][Config::kWarpN / 8][4], const float* a_tile,
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
      for (int j = 0; j < Config::kWarpN / 8; ++j) mma_1688(sums[i][j], a, b[j]);
    }
  }
}

// Begin to copy kExtent rows of an operand and the K elements from `depth` on.
template <class Config, int kExtent, int kPitch, bool kKMajor, bool kAsync, class Index>
__device__ __forceinline__ void fill_tf32_operand(float* tile, const MatmulOperand<float, Index>& x,
                                                  Index depth, Index depths) {
  if constexpr (kKMajor) {
    matmul_fill<kExtent, Config::kTileK, kPitch, Config::kThreads, kAsync, 4>(
        tile, x.data, x.position, depth, x.extent, depths, x.stride, x.depth_stride);
  } else {
    matmul_fill<Config::kTileK, kExtent, kPitch, Config::kThreads, kAsync, 4>(
        tile, x.data, depth, x.position, depths, x.extent, x.depth_stride, x.stride);
  }
}

// Begin to fill the stage of a step.
template <class Config, class A, class B, class Index>
__device__ __forceinline__ void fill_tf32_stage(unsigned char* shared, const A& a, const B& b,
                                                Index depths, int step) {
  unsigned char* const stage = shared + step % Config::kStages * Config::kStageBytes;
  const Index depth = static_cast<Index>(step) * Config::kTileK;
  fill_tf32_operand<Config, Config::kTileM, Config::kAPitch, Config::kAKMajor, Config::kAAsync>(
      reinterpret_cast<float*>(stage), a, depth, depths);
  fill_tf32_operand<Config, Config::kTileN, Config::kBPitch, Config::kBKMajor, Config::kBAsync>(
      reinterpret_cast<float*>(stage + Config::kATileBytes), b, depth, depths);
}

// sums += the products of all `depths` elements of K, as multiply_steps (matmul_mma.cuh).
template <class Config, class A, class B, class Index>
__device__ __forceinline__ void multiply_tf32_steps(
    float (&sums)[Config::kWarpM / 16][Config::kWarpN / 8][4], unsigned char* shared, const A& a,
    const B& b, Index depths, int row, int column) {
  const int steps = tile_count(depths, Config::kTileK);
#pragma unroll
  for (int step = 0; step < Config::kStages - 1; ++step) {
    if (step < steps) fill_tf32_stage<Config>(shared, a, b, depths, step);
    copy_commit();
  }
  for (int step = 0; step < steps; ++step) {
    // The oldest stage has landed, and every warp is done with the one that is filled next.
    copy_wait<Config::kStages - 2>();
    __syncthreads();
    const int next = step + Config::kStages - 1;
    if (next < steps) fill_tf32_stage<Config>(shared, a, b, depths, next);
    copy_commit();
    const unsigned char* const stage = shared + step % Config::kStages * Config::kStageBytes;
    multiply_tf32_step<Config>(sums, reinterpret_cast<const float*>(stage),
                               reinterpret_cast<const float*>(stage + Config::kATileBytes), row,
                               column);
  }
}

}  // namespace fusec
