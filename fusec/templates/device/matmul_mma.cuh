// Main loop of a GEMM with mma.sync: a ring of stages in shared memory, filled with cp.async. The
// columns of a shared tile run along the contiguous axis of its operand, K or else M or N. `Config`
// is the struct at the top of the kernel: its tile, stages and warp tile, and the offsets of the
// operands in a stage. All threads of the CTA call these functions.
#pragma once

#include "matmul_fill.cuh"
#include "matmul_tile.cuh"
#include "mma.cuh"

namespace fusec {

// Starts copying kExtent rows of an operand and the elements of K that start at `depth`.
template <class Config, int kExtent, int kPitch, bool kKMajor, bool kAsync, class S, class Index>
__device__ __forceinline__ void fill_operand(typename Config::T* tile,
                                             const MatmulOperand<S, Index>& x, Index depth,
                                             Index depths) {
  constexpr int kChunk = 16 / static_cast<int>(sizeof(typename Config::T));
  if constexpr (kKMajor) {
    matmul_fill<kExtent, Config::kTileK, kPitch, Config::kThreads, kAsync, kChunk>(
        tile, x.data, x.position, depth, x.extent, depths, x.stride, x.depth_stride);
  } else {
    matmul_fill<Config::kTileK, kExtent, kPitch, Config::kThreads, kAsync, kChunk>(
        tile, x.data, depth, x.position, depths, x.extent, x.depth_stride, x.stride);
  }
}

// Starts filling the stage of a K step.
template <class Config, class A, class B, class Index>
__device__ __forceinline__ void fill_stage(unsigned char* shared, const A& a, const B& b,
                                           Index depths, int step) {
  using T = typename Config::T;
  unsigned char* const stage = shared + step % Config::kStages * Config::kStageBytes;
  const Index depth = static_cast<Index>(step) * Config::kTileK;
  fill_operand<Config, Config::kTileM, Config::kAPitch, Config::kAKMajor, Config::kAAsync>(
      reinterpret_cast<T*>(stage), a, depth, depths);
  fill_operand<Config, Config::kTileN, Config::kBPitch, Config::kBKMajor, Config::kBAsync>(
      reinterpret_cast<T*>(stage + Config::kATileBytes), b, depth, depths);
}

// Loads the 16 x 16 fragment of A at (row, depth) of the tile, as mma_16816 expects it.
template <int kPitch, bool kKMajor, class T>
__device__ __forceinline__ void load_rows(u32 (&a)[4], const T* tile, int row, int depth) {
  const int lane = threadIdx.x % 32;
  if constexpr (kKMajor) {
    ldmatrix_x4(a, tile + (row + lane % 16) * kPitch + depth + lane / 16 * 8);
  } else {
    ldmatrix_x4_trans(a,
                      tile + (depth + lane % 8 + lane / 16 * 8) * kPitch + row + lane / 8 % 2 * 8);
  }
}

// Loads the 16 x 16 fragment of B at (depth, column) of the tile, as two mma_16816 expect it.
template <int kPitch, bool kKMajor, class T>
__device__ __forceinline__ void load_columns(u32 (&b)[4], const T* tile, int column, int depth) {
  const int lane = threadIdx.x % 32;
  if constexpr (kKMajor) {
    ldmatrix_x4(b, tile + (column + lane % 8 + lane / 16 * 8) * kPitch + depth + lane / 8 % 2 * 8);
  } else {
    ldmatrix_x4_trans(b, tile + (depth + lane % 16) * kPitch + column + lane / 16 * 8);
  }
}

// How the operands of a stage are multiplied: 16-bit floats with mma_16816. accumulators += the
// products for the warp tile at (row, column).
struct MultiplyHalves {
  template <class Config>
  __device__ static __forceinline__ void multiply_step(
      float (&accumulators)[Config::kWarpM / 16][Config::kWarpN / 8][4],
      const typename Config::T* a_tile, const typename Config::T* b_tile, int row, int column) {
#pragma unroll
    for (int depth = 0; depth < Config::kTileK; depth += 16) {
      u32 a[Config::kWarpM / 16][4];
      u32 b[Config::kWarpN / 8][2];
#pragma unroll
      for (int i = 0; i < Config::kWarpM / 16; ++i) {
        load_rows<Config::kAPitch, Config::kAKMajor>(a[i], a_tile, row + 16 * i, depth);
      }
#pragma unroll
      for (int j = 0; j < Config::kWarpN / 16; ++j) {
        u32 pieces[4];
        load_columns<Config::kBPitch, Config::kBKMajor>(pieces, b_tile, column + 16 * j, depth);
#pragma unroll
        for (int p = 0; p < 4; ++p) b[2 * j + p / 2][p % 2] = pieces[p];
      }
#pragma unroll
      for (int i = 0; i < Config::kWarpM / 16; ++i) {
#pragma unroll
        for (int j = 0; j < Config::kWarpN / 8; ++j) {
          mma_16816<typename Config::T>(accumulators[i][j], a[i], b[j]);
        }
      }
    }
  }
};

// accumulators += the products of all `depths` elements of K for the warp tile at (row, column).
// kStages - 1 stages are in flight before the first product. Empty groups are committed too, so
// that the number of pending groups equals the number of pending steps. `Multiply` is
// MultiplyHalves or the equivalent for another type.
template <class Config, class Multiply = MultiplyHalves, class A, class B, class Index>
__device__ __forceinline__ void multiply_steps(
    float (&accumulators)[Config::kWarpM / 16][Config::kWarpN / 8][4], unsigned char* shared,
    const A& a, const B& b, Index depths, int row, int column) {
  using T = typename Config::T;
  const int steps = tile_count(depths, Config::kTileK);
#pragma unroll
  for (int step = 0; step < Config::kStages - 1; ++step) {
    if (step < steps) fill_stage<Config>(shared, a, b, depths, step);
    copy_commit();
  }
  for (int step = 0; step < steps; ++step) {
    // The oldest stage has arrived, and all warps have finished reading the stage that is filled
    // next.
    copy_wait<Config::kStages - 2>();
    __syncthreads();
    const int next = step + Config::kStages - 1;
    if (next < steps) fill_stage<Config>(shared, a, b, depths, next);
    copy_commit();
    const unsigned char* const stage = shared + step % Config::kStages * Config::kStageBytes;
    Multiply::template multiply_step<Config>(
        accumulators, reinterpret_cast<const T*>(stage),
        reinterpret_cast<const T*>(stage + Config::kATileBytes), row, column);
  }
}

}  // namespace fusec
