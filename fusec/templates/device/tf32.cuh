// Numbers of 10 bits behind the point, in floats, and products of them by mma.sync (sm_80).
#pragma once

#include "mma.cuh"

namespace fusec {

// The nearest of them, ties away from 0, as tensor cores take it.
__device__ __forceinline__ u32 tf32_bits(float x) {
  u32 bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

__device__ __forceinline__ float round_to_tf32(float x) { return __uint_as_float(tf32_bits(x)); }

// D[16][8] += A[16][8] B[8][8]; all 32 lanes call it. With group = lane / 4 and pair = lane % 4, a
// lane holds
//   A: a[0] (group, k = pair), a[1] (group + 8, pair), a[2] (group, pair + 4), a[3] both + 8, + 4;
//   B: b[0] (k = pair, n = group), b[1] (k = pair + 4, n = group); D: as mma_16816 (mma.cuh).
__device__ __forceinline__ void mma_1688(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
      " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

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

// sums += the products of one stage, for the part of the tile from `row` and `column` on, as
// multiply_step (matmul_mma.cuh) for halves. `Config` is the struct at the top of the kernel.
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

}  // namespace fusec
