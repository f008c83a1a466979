// wgmma (wgmma.cuh) of Tf32 (10 mantissa bits): D[64][kN] += A[64][8] B[8][kN], both operands
// K-major in shared memory. The rules of wgmma.cuh apply. The hardware truncates the remaining
// mantissa bits, so operands must be rounded when they are written to shared memory, as TMA does
// with a Tf32 tensor map.
#pragma once

#include "wgmma.cuh"

namespace fusec {

// Tag type that selects Tf32 operands.
struct Tf32 {
  float value;
};

// scale_d: 0 overwrites D, 1 adds to it. The next 8 elements of K are kDescriptorStepK further.
template <int kN>
__device__ __forceinline__ void wgmma_tf32(float* d, u64 a, u64 b, int scale_d) {
  static_assert(kN % 8 == 0 && kN >= 8 && kN <= 256);
#define FUSEC_WGMMA_TF32(N, A_AT, B_AT, SCALE, ...)                                  \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" SCALE                            \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N                          \
               "k8.f32.tf32.tf32"                                                    \
               " {" FUSEC_WGMMA_REGISTERS_##N "}, %" A_AT ", %" B_AT ", p, 1, 1;\n}" \
               : FUSEC_WGMMA_OUTPUTS_##N                                             \
               : "l"(a), "l"(b), "r"(scale_d))
#define FUSEC_WGMMA_TF32_OF(N, ...) \
  if constexpr (kN == N) FUSEC_WGMMA_TF32(N, __VA_ARGS__);
  FUSEC_WGMMA_OTHERS_8(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_16(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_24(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_32(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_40(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_48(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_56(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_64(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_72(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_80(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_88(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_96(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_104(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_112(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_120(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_128(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_136(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_144(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_152(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_160(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_168(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_176(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_184(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_192(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_200(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_208(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_216(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_224(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_232(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_240(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_248(FUSEC_WGMMA_TF32_OF)
  FUSEC_WGMMA_OTHERS_256(FUSEC_WGMMA_TF32_OF)
#undef FUSEC_WGMMA_TF32_OF
#undef FUSEC_WGMMA_TF32
}

}  // namespace fusec
