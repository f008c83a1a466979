// wgmma (wgmma.cuh) of 8-bit floats: D[64][kN] += A[64][32] B[32][kN], both operands K-major in
// shared memory and of either type. The rules of wgmma.cuh apply. Tensor cores accumulate with
// about 14 bits, so sums over more than 128 elements of K must be promoted to other registers
// (matmul_promoted.cuh).
#pragma once

#include "wgmma.cuh"

namespace fusec {

// The operand types in PTX syntax.
template <class A, class B>
struct Fp8Types;
template <>
struct Fp8Types<f8e4m3, f8e4m3> {
  static constexpr char kText[] = ".e4m3.e4m3";
};
template <>
struct Fp8Types<f8e4m3, f8e5m2> {
  static constexpr char kText[] = ".e4m3.e5m2";
};
template <>
struct Fp8Types<f8e5m2, f8e4m3> {
  static constexpr char kText[] = ".e5m2.e4m3";
};
template <>
struct Fp8Types<f8e5m2, f8e5m2> {
  static constexpr char kText[] = ".e5m2.e5m2";
};

// scale_d: 0 overwrites D, 1 adds to it. The next 32 elements of K are kDescriptorStepK further.
template <int kN, class A, class B>
__device__ __forceinline__ void wgmma_fp8(float* d, u64 a, u64 b, int scale_d) {
  static_assert(kN % 8 == 0 && kN >= 8 && kN <= 256);
#define FUSEC_WGMMA_FP8(N, A_AT, B_AT, SCALE, TYPES, ...)                            \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" SCALE                            \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k32.f32%" TYPES         \
               " {" FUSEC_WGMMA_REGISTERS_##N "}, %" A_AT ", %" B_AT ", p, 1, 1;\n}" \
               : FUSEC_WGMMA_OUTPUTS_##N                                             \
               : "l"(a), "l"(b), "r"(scale_d), "C"(Fp8Types<A, B>::kText))
#define FUSEC_WGMMA_FP8_OF(N, ...) \
  if constexpr (kN == N) FUSEC_WGMMA_FP8(N, __VA_ARGS__);
  FUSEC_WGMMA_OTHERS_8(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_16(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_24(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_32(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_40(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_48(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_56(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_64(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_72(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_80(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_88(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_96(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_104(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_112(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_120(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_128(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_136(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_144(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_152(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_160(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_168(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_176(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_184(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_192(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_200(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_208(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_216(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_224(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_232(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_240(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_248(FUSEC_WGMMA_FP8_OF)
  FUSEC_WGMMA_OTHERS_256(FUSEC_WGMMA_FP8_OF)
#undef FUSEC_WGMMA_FP8_OF
#undef FUSEC_WGMMA_FP8
}

}  // namespace fusec
