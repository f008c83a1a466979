// Conversions between float and the two 8-bit floats, called by types.cuh and seldom by kernels.
// Encoding rounds to nearest even; NaN stays NaN. Overflow gives the largest finite value in e4m3,
// which has no infinity, and infinity in e5m2, as in PyTorch. sm_89 and later have instructions;
// older architectures use integer arithmetic with bitwise equal results.
#pragma once

#include "storage.cuh"

namespace fusec {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define FUSEC_HAS_FP8_CVT 1
#else
#define FUSEC_HAS_FP8_CVT 0
#endif

// Encodes with integer arithmetic. kMantissaBits and kBias describe the 8-bit format, `largest` is
// its largest finite value.
template <int kMantissaBits, int kBias>
__device__ __forceinline__ u8 encode_fp8(float value, float largest, u8 nan_bits) {
  const u32 bits = __float_as_uint(value);
  const u32 sign = (bits >> 24) & 0x80u;
  const float magnitude = fabsf(value);
  if (magnitude != magnitude) return static_cast<u8>(sign | nan_bits);
  const float clamped = fminf(magnitude, largest);
  // Denormals are equally spaced: scaling by the reciprocal of their spacing is exact.
  const float smallest_normal = __uint_as_float(static_cast<u32>(127 + 1 - kBias) << 23);
  if (clamped < smallest_normal) {
    const float steps_per_unit =
        __uint_as_float(static_cast<u32>(127 + kBias - 1 + kMantissaBits) << 23);
    return static_cast<u8>(sign | static_cast<u32>(rintf(clamped * steps_per_unit)));
  }
  constexpr int kDropped = 23 - kMantissaBits;
  u32 rounded = __float_as_uint(clamped);
  rounded += (1u << (kDropped - 1)) - 1 + ((rounded >> kDropped) & 1u);
  const u32 rebased = (rounded >> kDropped) - (static_cast<u32>(127 - kBias) << kMantissaBits);
  return static_cast<u8>(sign | rebased);
}

__device__ __forceinline__ f8e4m3 float_to_f8e4m3(float value) {
#if FUSEC_HAS_FP8_CVT
  u16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
  return f8e4m3{static_cast<u8>(pair)};
#else
  return f8e4m3{encode_fp8<3, 7>(value, 448.0f, 0x7f)};
#endif
}

__device__ __forceinline__ f8e5m2 float_to_f8e5m2(float value) {
  // Halfway from 57344, the largest finite value, to the next power of two. The instruction only
  // saturates.
  if (fabsf(value) >= 61440.0f) {
    return f8e5m2{static_cast<u8>(__float_as_uint(value) >> 24 & 0x80u | 0x7cu)};
  }
#if FUSEC_HAS_FP8_CVT
  u16 pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
  return f8e5m2{static_cast<u8>(pair)};
#else
  return f8e5m2{encode_fp8<2, 15>(value, 57344.0f, 0x7f)};
#endif
}

// In the bit fields of an fp16, an e4m3 value is too small by 2^8 (bias 7 instead of 15), denormals
// included.
__device__ __forceinline__ float f8e4m3_to_float(f8e4m3 value) {
  const u32 magnitude = value.bits & 0x7fu;
  if (magnitude == 0x7fu) return NAN;
  const u16 half_bits = static_cast<u16>((value.bits & 0x80u) << 8 | magnitude << 7);
  float scaled;
  asm("cvt.f32.f16 %0, %1;" : "=f"(scaled) : "h"(half_bits));
  return scaled * 256.0f;
}

__device__ __forceinline__ float f8e5m2_to_float(f8e5m2 value) {
  const u16 half_bits = static_cast<u16>(value.bits << 8);
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(half_bits));
  return result;
}

}  // namespace fusec
