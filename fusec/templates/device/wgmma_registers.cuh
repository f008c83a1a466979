// wgmma (wgmma.cuh) with its first operand in registers and its second MN-major in shared memory:
// D[64][kN] += A[64][16] B[16][kN]. The rules of wgmma.cuh apply, also to A's registers. In thread
// t of the warpgroup, a[i] is row 16 (t / 32) + (t % 32) / 4 + 8 (i % 2), columns 2 (t % 4) + 8 (i
// / 2) and the next, which matches two rounded blocks of eight accumulator columns.
#pragma once

#include "wgmma.cuh"

namespace fusec {

template <int kN, class T>
__device__ __forceinline__ void wgmma_registers(float* d, const u32 (&a)[4], u64 b) {
  static_assert(kIsSame<T, bf16> || kIsSame<T, f16>);
#define FUSEC_WGMMA_FROM_REGISTERS(N, TYPE, A0, A1, A2, A3, B)                                \
  asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" #N \
               "k16.f32." TYPE "." TYPE " {" FUSEC_WGMMA_REGISTERS_##N                        \
               "}, {%" A0 ", %" A1 ", %" A2 ", %" A3 "}, %" B ", p, 1, 1, 1;\n}"              \
               : FUSEC_WGMMA_OUTPUTS_##N                                                      \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define FUSEC_WGMMA_FROM_REGISTERS_BOTH(N, ...)           \
  if constexpr (kN == N) {                                \
    if constexpr (kIsSame<T, bf16>) {                     \
      FUSEC_WGMMA_FROM_REGISTERS(N, "bf16", __VA_ARGS__); \
    } else {                                              \
      FUSEC_WGMMA_FROM_REGISTERS(N, "f16", __VA_ARGS__);  \
    }                                                     \
  }
  static_assert(kN == 64 || kN == 96 || kN == 128 || kN == 256);
  FUSEC_WGMMA_OTHERS_64(FUSEC_WGMMA_FROM_REGISTERS_BOTH)
  FUSEC_WGMMA_OTHERS_96(FUSEC_WGMMA_FROM_REGISTERS_BOTH)
  FUSEC_WGMMA_OTHERS_128(FUSEC_WGMMA_FROM_REGISTERS_BOTH)
  FUSEC_WGMMA_OTHERS_256(FUSEC_WGMMA_FROM_REGISTERS_BOTH)
#undef FUSEC_WGMMA_FROM_REGISTERS_BOTH
#undef FUSEC_WGMMA_FROM_REGISTERS
}

}  // namespace fusec
