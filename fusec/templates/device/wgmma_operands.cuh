// The operand lists of wgmma.cuh: the numbered accumulators of each width and the operands after
// them. PTX wants every register spelled out; nothing else includes this header.
#pragma once

// Eight, and then 32, accumulators from d[i] on.
#define FUSEC_D8(i)                                                                           \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define FUSEC_D32(i) FUSEC_D8(i), FUSEC_D8(i + 8), FUSEC_D8(i + 16), FUSEC_D8(i + 24)

// The text of 32 operands, by where they begin.
#define FUSEC_TEXT_0                         \
  "%0, %1, %2, %3, %4, %5, %6, %7, "         \
  "%8, %9, %10, %11, %12, %13, %14, %15, "   \
  "%16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define FUSEC_TEXT_32                        \
  "%32, %33, %34, %35, %36, %37, %38, %39, " \
  "%40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, " \
  "%56, %57, %58, %59, %60, %61, %62, %63"
#define FUSEC_TEXT_64                        \
  "%64, %65, %66, %67, %68, %69, %70, %71, " \
  "%72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, " \
  "%88, %89, %90, %91, %92, %93, %94, %95"
#define FUSEC_TEXT_96                                \
  "%96, %97, %98, %99, %100, %101, %102, %103, "     \
  "%104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, " \
  "%120, %121, %122, %123, %124, %125, %126, %127"

#define FUSEC_WGMMA_REGISTERS_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define FUSEC_WGMMA_OUTPUTS_16 FUSEC_D8(0)
#define FUSEC_WGMMA_A_16 "8"
#define FUSEC_WGMMA_B_16 "9"
#define FUSEC_WGMMA_SCALE_16 "10"
#define FUSEC_WGMMA_TRANS_A_16 "11"
#define FUSEC_WGMMA_TRANS_B_16 "12"

#define FUSEC_WGMMA_REGISTERS_32           \
  "%0, %1, %2, %3, %4, %5, %6, %7, "       \
  "%8, %9, %10, %11, %12, %13, %14, %15"
#define FUSEC_WGMMA_OUTPUTS_32 FUSEC_D8(0), FUSEC_D8(8)
#define FUSEC_WGMMA_A_32 "16"
#define FUSEC_WGMMA_B_32 "17"
#define FUSEC_WGMMA_SCALE_32 "18"
#define FUSEC_WGMMA_TRANS_A_32 "19"
#define FUSEC_WGMMA_TRANS_B_32 "20"

#define FUSEC_WGMMA_REGISTERS_64 FUSEC_TEXT_0
#define FUSEC_WGMMA_OUTPUTS_64 FUSEC_D32(0)
#define FUSEC_WGMMA_A_64 "32"
#define FUSEC_WGMMA_B_64 "33"
#define FUSEC_WGMMA_SCALE_64 "34"
#define FUSEC_WGMMA_TRANS_A_64 "35"
#define FUSEC_WGMMA_TRANS_B_64 "36"

#define FUSEC_WGMMA_REGISTERS_128 FUSEC_TEXT_0 ", " FUSEC_TEXT_32
#define FUSEC_WGMMA_OUTPUTS_128 FUSEC_D32(0), FUSEC_D32(32)
#define FUSEC_WGMMA_A_128 "64"
#define FUSEC_WGMMA_B_128 "65"
#define FUSEC_WGMMA_SCALE_128 "66"
#define FUSEC_WGMMA_TRANS_A_128 "67"
#define FUSEC_WGMMA_TRANS_B_128 "68"

#define FUSEC_WGMMA_REGISTERS_192 FUSEC_TEXT_0 ", " FUSEC_TEXT_32 ", " FUSEC_TEXT_64
#define FUSEC_WGMMA_OUTPUTS_192 FUSEC_D32(0), FUSEC_D32(32), FUSEC_D32(64)
#define FUSEC_WGMMA_A_192 "96"
#define FUSEC_WGMMA_B_192 "97"
#define FUSEC_WGMMA_SCALE_192 "98"
#define FUSEC_WGMMA_TRANS_A_192 "99"
#define FUSEC_WGMMA_TRANS_B_192 "100"

#define FUSEC_WGMMA_REGISTERS_256 \
  FUSEC_TEXT_0 ", " FUSEC_TEXT_32 ", " FUSEC_TEXT_64 ", " FUSEC_TEXT_96
#define FUSEC_WGMMA_OUTPUTS_256 FUSEC_D32(0), FUSEC_D32(32), FUSEC_D32(64), FUSEC_D32(96)
#define FUSEC_WGMMA_A_256 "128"
#define FUSEC_WGMMA_B_256 "129"
#define FUSEC_WGMMA_SCALE_256 "130"
#define FUSEC_WGMMA_TRANS_A_256 "131"
#define FUSEC_WGMMA_TRANS_B_256 "132"
