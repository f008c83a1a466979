// Numbers of 10 bits behind the point, in floats, and products of them by mma.sync (sm_80).
#pragma once

#include "types.cuh"

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

// An element of a tile of floats, whose rows are along K or across it.
template <int kPitch, bool kKMajor>
__device__ __forceinline__ u32 tf32_at(const float* tile, int row, int depth) {
  return tf32_bits(kKMajor ? tile[row * kPitch + depth] : tile[depth * kPitch + row]);
}

// sums += the products of one stage, for the part of the tile from `row` and `column` on, as
// multiply_step (matmul_mma.cuh) for halves. `Config` is the struct at the top of the kernel.
template <class Config>
__device__ __forceinline__ void multiply_tf32_step(
    float (&sums)[Config::kWarpM / 16][Config::kWarpN / 8][4], const float* a_tile,
    const float* b_tile, int row, int column) {
  const int group = threadIdx.x % 32 / 4;
  const int pair = threadIdx.x % 4;
#pragma unroll
  for (int depth = 0; depth < Config::kTileK; depth += 8) {
    u32 b[Config::kWarpN / 8][2];
#pragma unroll
    for (int j = 0; j < Config::kWarpN / 8; ++j) {
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        b[j][p] = tf32_at<Config::kBPitch, Config::kBKMajor>(b_tile, column + 8 * j + group,
                                                             depth + pair + 4 * p);
      }
    }
#pragma unroll
    for (int i = 0; i < Config::kWarpM / 16; ++i) {
      u32 a[4];
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        a[p] = tf32_at<Config::kAPitch, Config::kAKMajor>(
            a_tile, row + 16 * i + group + p % 2 * 8, depth + pair + p / 2 * 4);
      }
#pragma unroll
      for (int j = 0; j < Config::kWarpN / 8; ++j) mma_1688(sums[i][j], a, b[j]);
    }
  }
}

}  // namespace fusec
