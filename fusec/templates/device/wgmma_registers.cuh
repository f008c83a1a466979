// wgmma (wgmma.cuh) whose first operand lies in registers: D[64][kN] += A[64][16] B[16][kN]. The
// same rules hold, and the registers of A are touched by nobody between fence and wait either.
// Thread t of the warpgroup holds in a[i] two neighbours of row 16 (t / 32) + (t % 32) / 4 + 8 (i %
// 2), columns 2 (t % 4) + 8 (i / 2) and the next: of two blocks of eight columns of sums, rounded.
#pragma once

#include "wgmma.cuh"

namespace fusec {

// Eight accumulators from d[i] on, and the numbers of operands.
#define FUSEC_RS_D8(i)                                                                        \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define FUSEC_RS_D32(i) FUSEC_RS_D8(i), FUSEC_RS_D8(i + 8), FUSEC_RS_D8(i + 16), FUSEC_RS_D8(i + 24)
#define FUSEC_RS_TEXT_0                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, "         \
  "%8, %9, %10, %11, %12, %13, %14, %15, "   \
  "%16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define FUSEC_RS_TEXT_32                       \
  ", %32, %33, %34, %35, %36, %37, %38, %39, "  \
  "%40, %41, %42, %43, %44, %45, %46, %47"
#define FUSEC_RS_TEXT_48                      \
  ", %48, %49, %50, %51, %52, %53, %54, %55, " \
  "%56, %57, %58, %59, %60, %61, %62, %63"
#define FUSEC_RS_TEXT_64                       \
  ", %64, %65, %66, %67, %68, %69, %70, %71, " \
  "%72, %73, %74, %75, %76, %77, %78, %79, "   \
  "%80, %81, %82, %83, %84, %85, %86, %87, "   \
  "%88, %89, %90, %91, %92, %93, %94, %95"
#define FUSEC_RS_TEXT_96                               \
  ", %96, %97, %98, %99, %100, %101, %102, %103, "     \
  "%104, %105, %106, %107, %108, %109, %110, %111, "   \
  "%112, %113, %114, %115, %116, %117, %118, %119, "   \
  "%120, %121, %122, %123, %124, %125, %126, %127"

#define FUSEC_RS_SUMS_64 FUSEC_RS_TEXT_0
#define FUSEC_RS_OUTPUTS_64 FUSEC_RS_D32(0)
#define FUSEC_RS_A_64 "%32, %33, %34, %35"
#define FUSEC_RS_B_64 "%36"
#define FUSEC_RS_TRANS_64 "%37"

#define FUSEC_RS_SUMS_96 FUSEC_RS_SUMS_64 FUSEC_RS_TEXT_32
#define FUSEC_RS_OUTPUTS_96 FUSEC_RS_D32(0), FUSEC_RS_D8(32), FUSEC_RS_D8(40)
#define FUSEC_RS_A_96 "%48, %49, %50, %51"
#define FUSEC_RS_B_96 "%52"
#define FUSEC_RS_TRANS_96 "%53"

#define FUSEC_RS_SUMS_128 FUSEC_RS_SUMS_96 FUSEC_RS_TEXT_48
#define FUSEC_RS_OUTPUTS_128 FUSEC_RS_D32(0), FUSEC_RS_D32(32)
#define FUSEC_RS_A_128 "%64, %65, %66, %67"
#define FUSEC_RS_B_128 "%68"
#define FUSEC_RS_TRANS_128 "%69"

#define FUSEC_RS_SUMS_256 FUSEC_RS_SUMS_128 FUSEC_RS_TEXT_64 FUSEC_RS_TEXT_96
#define FUSEC_RS_OUTPUTS_256 \
  FUSEC_RS_D32(0), FUSEC_RS_D32(32), FUSEC_RS_D32(64), FUSEC_RS_D32(96)
#define FUSEC_RS_A_256 "%128, %129, %130, %131"
#define FUSEC_RS_B_256 "%132"
#define FUSEC_RS_TRANS_256 "%133"

// kTransposeB is 1 where B is MN-major.
template <int kN, class T, int kTransposeB = 0>
__device__ __forceinline__ void wgmma_registers(float (&d)[kN / 2], const u32 (&a)[4], u64 b) {
  static_assert(kIsSame<T, bf16> || kIsSame<T, f16>);
#define FUSEC_WGMMA_REGISTERS(N, TYPE)                                                      \
  asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE              \
               " {" FUSEC_RS_SUMS_##N "}, {" FUSEC_RS_A_##N "}, " FUSEC_RS_B_##N            \
               ", p, 1, 1, " FUSEC_RS_TRANS_##N ";\n}"                                       \
               : FUSEC_RS_OUTPUTS_##N                                                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kTransposeB))
#define FUSEC_WGMMA_REGISTERS_BOTH(N)  \
  if constexpr (kIsSame<T, bf16>) {    \
    FUSEC_WGMMA_REGISTERS(N, "bf16");  \
  } else {                             \
    FUSEC_WGMMA_REGISTERS(N, "f16");   \
  }
  if constexpr (kN == 64) {
    FUSEC_WGMMA_REGISTERS_BOTH(64)
  } else if constexpr (kN == 96) {
    FUSEC_WGMMA_REGISTERS_BOTH(96)
  } else if constexpr (kN == 128) {
    FUSEC_WGMMA_REGISTERS_BOTH(128)
  } else {
    static_assert(kN == 256);
    FUSEC_WGMMA_REGISTERS_BOTH(256)
  }
#undef FUSEC_WGMMA_REGISTERS_BOTH
#undef FUSEC_WGMMA_REGISTERS
}

}  // namespace fusec
