// Tf32, floats with 10 mantissa bits, and its mma.sync (sm_80).
#pragma once

#include "types.cuh"

namespace fusec {

// Returns x rounded to Tf32, ties away from zero, as tensor cores expect it.
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

}  // namespace fusec
