// wgmma (wgmma.cuh) with its first operand in registers and its second K-major in shared memory,
// for matmul_converted.cuh: D[64][kN] += A[64][16] B[16][kN]. In thread t of the warpgroup, a[i] is
// row 16 (t / 32) + (t % 32) / 4 + 8 (i % 2), columns 2 (t % 4) + 8 (i / 2) and the next. A's
// registers must not be accessed between fence and wait.
#pragma once

#include "wgmma.cuh"

namespace fusec {

template <int kN, class T>
__device__ __forceinline__ void wgmma_converted(float* d, const u32 (&a)[4], u64 b, int scale_d) {
  static_assert(kIsSame<T, bf16> || kIsSame<T, f16>);
#define FUSEC_WGMMA_CONVERTED(N, TYPE, A0, A1, A2, A3, B, SCALE)                             \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" SCALE                                    \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE         \
               " {" FUSEC_WGMMA_REGISTERS_##N "}, {%" A0 ", %" A1 ", %" A2 ", %" A3 "}, %" B \
                                              ", p, 1, 1, 0;\n}"                             \
               : FUSEC_WGMMA_OUTPUTS_##N                                                     \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(scale_d))
#define FUSEC_WGMMA_CONVERTED_OF(N, ...)             \
  if constexpr (kN == N) {                           \
    if constexpr (kIsSame<T, bf16>) {                \
      FUSEC_WGMMA_CONVERTED(N, "bf16", __VA_ARGS__); \
    } else {                                         \
      FUSEC_WGMMA_CONVERTED(N, "f16", __VA_ARGS__);  \
    }                                                \
  }
  static_assert(kN % 16 == 0 && kN >= 16 && kN <= 256);
  FUSEC_WGMMA_CONVERTED_OF(16, "8", "9", "10", "11", "12", "13")
  FUSEC_WGMMA_CONVERTED_OF(32, "16", "17", "18", "19", "20", "21")
  FUSEC_WGMMA_CONVERTED_OF(48, "24", "25", "26", "27", "28", "29")
  FUSEC_WGMMA_CONVERTED_OF(64, "32", "33", "34", "35", "36", "37")
  FUSEC_WGMMA_CONVERTED_OF(80, "40", "41", "42", "43", "44", "45")
  FUSEC_WGMMA_CONVERTED_OF(96, "48", "49", "50", "51", "52", "53")
  FUSEC_WGMMA_CONVERTED_OF(112, "56", "57", "58", "59", "60", "61")
  FUSEC_WGMMA_CONVERTED_OF(128, "64", "65", "66", "67", "68", "69")
  FUSEC_WGMMA_CONVERTED_OF(144, "72", "73", "74", "75", "76", "77")
  FUSEC_WGMMA_CONVERTED_OF(160, "80", "81", "82", "83", "84", "85")
  FUSEC_WGMMA_CONVERTED_OF(176, "88", "89", "90", "91", "92", "93")
  FUSEC_WGMMA_CONVERTED_OF(192, "96", "97", "98", "99", "100", "101")
  FUSEC_WGMMA_CONVERTED_OF(208, "104", "105", "106", "107", "108", "109")
  FUSEC_WGMMA_CONVERTED_OF(224, "112", "113", "114", "115", "116", "117")
  FUSEC_WGMMA_CONVERTED_OF(240, "120", "121", "122", "123", "124", "125")
  FUSEC_WGMMA_CONVERTED_OF(256, "128", "129", "130", "131", "132", "133")
#undef FUSEC_WGMMA_CONVERTED_OF
#undef FUSEC_WGMMA_CONVERTED
}

}  // namespace fusec
