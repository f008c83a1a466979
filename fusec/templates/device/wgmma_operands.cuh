// The operand lists of wgmma.cuh: the numbered accumulators for each width and the operands that
// follow. PTX requires every register to be listed; no other header includes this one.
#pragma once

// Four accumulators starting at d[i].
#define FUSEC_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])

// The accumulators for each width as text, built from the next smaller width.
#define FUSEC_WGMMA_REGISTERS_8 "%0, %1, %2, %3"
#define FUSEC_WGMMA_REGISTERS_16 \
  FUSEC_WGMMA_REGISTERS_8        \
  ", "                           \
  "%4, %5, %6, %7"
#define FUSEC_WGMMA_REGISTERS_24 \
  FUSEC_WGMMA_REGISTERS_16       \
  ", "                           \
  "%8, %9, %10, %11"
#define FUSEC_WGMMA_REGISTERS_32 \
  FUSEC_WGMMA_REGISTERS_24       \
  ", "                           \
  "%12, %13, %14, %15"
#define FUSEC_WGMMA_REGISTERS_40 \
  FUSEC_WGMMA_REGISTERS_32       \
  ", "                           \
  "%16, %17, %18, %19"
#define FUSEC_WGMMA_REGISTERS_48 \
  FUSEC_WGMMA_REGISTERS_40       \
  ", "                           \
  "%20, %21, %22, %23"
#define FUSEC_WGMMA_REGISTERS_56 \
  FUSEC_WGMMA_REGISTERS_48       \
  ", "                           \
  "%24, %25, %26, %27"
#define FUSEC_WGMMA_REGISTERS_64 \
  FUSEC_WGMMA_REGISTERS_56       \
  ", "                           \
  "%28, %29, %30, %31"
#define FUSEC_WGMMA_REGISTERS_72 \
  FUSEC_WGMMA_REGISTERS_64       \
  ", "                           \
  "%32, %33, %34, %35"
#define FUSEC_WGMMA_REGISTERS_80 \
  FUSEC_WGMMA_REGISTERS_72       \
  ", "                           \
  "%36, %37, %38, %39"
#define FUSEC_WGMMA_REGISTERS_88 \
  FUSEC_WGMMA_REGISTERS_80       \
  ", "                           \
  "%40, %41, %42, %43"
#define FUSEC_WGMMA_REGISTERS_96 \
  FUSEC_WGMMA_REGISTERS_88       \
  ", "                           \
  "%44, %45, %46, %47"
#define FUSEC_WGMMA_REGISTERS_104 \
  FUSEC_WGMMA_REGISTERS_96        \
  ", "                            \
  "%48, %49, %50, %51"
#define FUSEC_WGMMA_REGISTERS_112 \
  FUSEC_WGMMA_REGISTERS_104       \
  ", "                            \
  "%52, %53, %54, %55"
#define FUSEC_WGMMA_REGISTERS_120 \
  FUSEC_WGMMA_REGISTERS_112       \
  ", "                            \
  "%56, %57, %58, %59"
#define FUSEC_WGMMA_REGISTERS_128 \
  FUSEC_WGMMA_REGISTERS_120       \
  ", "                            \
  "%60, %61, %62, %63"
#define FUSEC_WGMMA_REGISTERS_136 \
  FUSEC_WGMMA_REGISTERS_128       \
  ", "                            \
  "%64, %65, %66, %67"
#define FUSEC_WGMMA_REGISTERS_144 \
  FUSEC_WGMMA_REGISTERS_136       \
  ", "                            \
  "%68, %69, %70, %71"
#define FUSEC_WGMMA_REGISTERS_152 \
  FUSEC_WGMMA_REGISTERS_144       \
  ", "                            \
  "%72, %73, %74, %75"
#define FUSEC_WGMMA_REGISTERS_160 \
  FUSEC_WGMMA_REGISTERS_152       \
  ", "                            \
  "%76, %77, %78, %79"
#define FUSEC_WGMMA_REGISTERS_168 \
  FUSEC_WGMMA_REGISTERS_160       \
  ", "                            \
  "%80, %81, %82, %83"
#define FUSEC_WGMMA_REGISTERS_176 \
  FUSEC_WGMMA_REGISTERS_168       \
  ", "                            \
  "%84, %85, %86, %87"
#define FUSEC_WGMMA_REGISTERS_184 \
  FUSEC_WGMMA_REGISTERS_176       \
  ", "                            \
  "%88, %89, %90, %91"
#define FUSEC_WGMMA_REGISTERS_192 \
  FUSEC_WGMMA_REGISTERS_184       \
  ", "                            \
  "%92, %93, %94, %95"
#define FUSEC_WGMMA_REGISTERS_200 \
  FUSEC_WGMMA_REGISTERS_192       \
  ", "                            \
  "%96, %97, %98, %99"
#define FUSEC_WGMMA_REGISTERS_208 \
  FUSEC_WGMMA_REGISTERS_200       \
  ", "                            \
  "%100, %101, %102, %103"
#define FUSEC_WGMMA_REGISTERS_216 \
  FUSEC_WGMMA_REGISTERS_208       \
  ", "                            \
  "%104, %105, %106, %107"
#define FUSEC_WGMMA_REGISTERS_224 \
  FUSEC_WGMMA_REGISTERS_216       \
  ", "                            \
  "%108, %109, %110, %111"
#define FUSEC_WGMMA_REGISTERS_232 \
  FUSEC_WGMMA_REGISTERS_224       \
  ", "                            \
  "%112, %113, %114, %115"
#define FUSEC_WGMMA_REGISTERS_240 \
  FUSEC_WGMMA_REGISTERS_232       \
  ", "                            \
  "%116, %117, %118, %119"
#define FUSEC_WGMMA_REGISTERS_248 \
  FUSEC_WGMMA_REGISTERS_240       \
  ", "                            \
  "%120, %121, %122, %123"
#define FUSEC_WGMMA_REGISTERS_256 \
  FUSEC_WGMMA_REGISTERS_248       \
  ", "                            \
  "%124, %125, %126, %127"

#define FUSEC_WGMMA_OUTPUTS_8 FUSEC_D4(0)
#define FUSEC_WGMMA_OUTPUTS_16 FUSEC_WGMMA_OUTPUTS_8, FUSEC_D4(4)
#define FUSEC_WGMMA_OUTPUTS_24 FUSEC_WGMMA_OUTPUTS_16, FUSEC_D4(8)
#define FUSEC_WGMMA_OUTPUTS_32 FUSEC_WGMMA_OUTPUTS_24, FUSEC_D4(12)
#define FUSEC_WGMMA_OUTPUTS_40 FUSEC_WGMMA_OUTPUTS_32, FUSEC_D4(16)
#define FUSEC_WGMMA_OUTPUTS_48 FUSEC_WGMMA_OUTPUTS_40, FUSEC_D4(20)
#define FUSEC_WGMMA_OUTPUTS_56 FUSEC_WGMMA_OUTPUTS_48, FUSEC_D4(24)
#define FUSEC_WGMMA_OUTPUTS_64 FUSEC_WGMMA_OUTPUTS_56, FUSEC_D4(28)
#define FUSEC_WGMMA_OUTPUTS_72 FUSEC_WGMMA_OUTPUTS_64, FUSEC_D4(32)
#define FUSEC_WGMMA_OUTPUTS_80 FUSEC_WGMMA_OUTPUTS_72, FUSEC_D4(36)
#define FUSEC_WGMMA_OUTPUTS_88 FUSEC_WGMMA_OUTPUTS_80, FUSEC_D4(40)
#define FUSEC_WGMMA_OUTPUTS_96 FUSEC_WGMMA_OUTPUTS_88, FUSEC_D4(44)
#define FUSEC_WGMMA_OUTPUTS_104 FUSEC_WGMMA_OUTPUTS_96, FUSEC_D4(48)
#define FUSEC_WGMMA_OUTPUTS_112 FUSEC_WGMMA_OUTPUTS_104, FUSEC_D4(52)
#define FUSEC_WGMMA_OUTPUTS_120 FUSEC_WGMMA_OUTPUTS_112, FUSEC_D4(56)
#define FUSEC_WGMMA_OUTPUTS_128 FUSEC_WGMMA_OUTPUTS_120, FUSEC_D4(60)
#define FUSEC_WGMMA_OUTPUTS_136 FUSEC_WGMMA_OUTPUTS_128, FUSEC_D4(64)
#define FUSEC_WGMMA_OUTPUTS_144 FUSEC_WGMMA_OUTPUTS_136, FUSEC_D4(68)
#define FUSEC_WGMMA_OUTPUTS_152 FUSEC_WGMMA_OUTPUTS_144, FUSEC_D4(72)
#define FUSEC_WGMMA_OUTPUTS_160 FUSEC_WGMMA_OUTPUTS_152, FUSEC_D4(76)
#define FUSEC_WGMMA_OUTPUTS_168 FUSEC_WGMMA_OUTPUTS_160, FUSEC_D4(80)
#define FUSEC_WGMMA_OUTPUTS_176 FUSEC_WGMMA_OUTPUTS_168, FUSEC_D4(84)
#define FUSEC_WGMMA_OUTPUTS_184 FUSEC_WGMMA_OUTPUTS_176, FUSEC_D4(88)
#define FUSEC_WGMMA_OUTPUTS_192 FUSEC_WGMMA_OUTPUTS_184, FUSEC_D4(92)
#define FUSEC_WGMMA_OUTPUTS_200 FUSEC_WGMMA_OUTPUTS_192, FUSEC_D4(96)
#define FUSEC_WGMMA_OUTPUTS_208 FUSEC_WGMMA_OUTPUTS_200, FUSEC_D4(100)
#define FUSEC_WGMMA_OUTPUTS_216 FUSEC_WGMMA_OUTPUTS_208, FUSEC_D4(104)
#define FUSEC_WGMMA_OUTPUTS_224 FUSEC_WGMMA_OUTPUTS_216, FUSEC_D4(108)
#define FUSEC_WGMMA_OUTPUTS_232 FUSEC_WGMMA_OUTPUTS_224, FUSEC_D4(112)
#define FUSEC_WGMMA_OUTPUTS_240 FUSEC_WGMMA_OUTPUTS_232, FUSEC_D4(116)
#define FUSEC_WGMMA_OUTPUTS_248 FUSEC_WGMMA_OUTPUTS_240, FUSEC_D4(120)
#define FUSEC_WGMMA_OUTPUTS_256 FUSEC_WGMMA_OUTPUTS_248, FUSEC_D4(124)

// The numbers of the remaining operands: A, B, scale_d, and whether A and B are transposed.
#define FUSEC_WGMMA_OTHERS_8(use) use(8, "4", "5", "6", "7", "8")
#define FUSEC_WGMMA_OTHERS_16(use) use(16, "8", "9", "10", "11", "12")
#define FUSEC_WGMMA_OTHERS_24(use) use(24, "12", "13", "14", "15", "16")
#define FUSEC_WGMMA_OTHERS_32(use) use(32, "16", "17", "18", "19", "20")
#define FUSEC_WGMMA_OTHERS_40(use) use(40, "20", "21", "22", "23", "24")
#define FUSEC_WGMMA_OTHERS_48(use) use(48, "24", "25", "26", "27", "28")
#define FUSEC_WGMMA_OTHERS_56(use) use(56, "28", "29", "30", "31", "32")
#define FUSEC_WGMMA_OTHERS_64(use) use(64, "32", "33", "34", "35", "36")
#define FUSEC_WGMMA_OTHERS_72(use) use(72, "36", "37", "38", "39", "40")
#define FUSEC_WGMMA_OTHERS_80(use) use(80, "40", "41", "42", "43", "44")
#define FUSEC_WGMMA_OTHERS_88(use) use(88, "44", "45", "46", "47", "48")
#define FUSEC_WGMMA_OTHERS_96(use) use(96, "48", "49", "50", "51", "52")
#define FUSEC_WGMMA_OTHERS_104(use) use(104, "52", "53", "54", "55", "56")
#define FUSEC_WGMMA_OTHERS_112(use) use(112, "56", "57", "58", "59", "60")
#define FUSEC_WGMMA_OTHERS_120(use) use(120, "60", "61", "62", "63", "64")
#define FUSEC_WGMMA_OTHERS_128(use) use(128, "64", "65", "66", "67", "68")
#define FUSEC_WGMMA_OTHERS_136(use) use(136, "68", "69", "70", "71", "72")
#define FUSEC_WGMMA_OTHERS_144(use) use(144, "72", "73", "74", "75", "76")
#define FUSEC_WGMMA_OTHERS_152(use) use(152, "76", "77", "78", "79", "80")
#define FUSEC_WGMMA_OTHERS_160(use) use(160, "80", "81", "82", "83", "84")
#define FUSEC_WGMMA_OTHERS_168(use) use(168, "84", "85", "86", "87", "88")
#define FUSEC_WGMMA_OTHERS_176(use) use(176, "88", "89", "90", "91", "92")
#define FUSEC_WGMMA_OTHERS_184(use) use(184, "92", "93", "94", "95", "96")
#define FUSEC_WGMMA_OTHERS_192(use) use(192, "96", "97", "98", "99", "100")
#define FUSEC_WGMMA_OTHERS_200(use) use(200, "100", "101", "102", "103", "104")
#define FUSEC_WGMMA_OTHERS_208(use) use(208, "104", "105", "106", "107", "108")
#define FUSEC_WGMMA_OTHERS_216(use) use(216, "108", "109", "110", "111", "112")
#define FUSEC_WGMMA_OTHERS_224(use) use(224, "112", "113", "114", "115", "116")
#define FUSEC_WGMMA_OTHERS_232(use) use(232, "116", "117", "118", "119", "120")
#define FUSEC_WGMMA_OTHERS_240(use) use(240, "120", "121", "122", "123", "124")
#define FUSEC_WGMMA_OTHERS_248(use) use(248, "124", "125", "126", "127", "128")
#define FUSEC_WGMMA_OTHERS_256(use) use(256, "128", "129", "130", "131", "132")
