// The element types of a kernel and the conversions between them. Every kernel includes this
// header. to_float(v) widens a stored value for computation; convert<To>(v) converts between any
// two types: to nearest even for floats, saturating for f8e4m3, truncating from float to integer,
// to bool by `!= 0`.
#pragma once

#include "fp8.cuh"
#include "storage.cuh"

namespace fusec {

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(double value) { return static_cast<float>(value); }
__device__ __forceinline__ float to_float(f8e4m3 value) { return f8e4m3_to_float(value); }
__device__ __forceinline__ float to_float(f8e5m2 value) { return f8e5m2_to_float(value); }
__device__ __forceinline__ float to_float(bf16 value) {
  float result;
  // A move of two 16-bit registers, which ptxas folds into the extraction, unlike a shift.
  asm("mov.b32 %0, {%1, %2};" : "=f"(result) : "h"(u16(0)), "h"(value.bits));
  return result;
}
__device__ __forceinline__ float to_float(f16 value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}
__device__ __forceinline__ float to_float(i8 value) { return static_cast<float>(value); }
__device__ __forceinline__ float to_float(i16 value) { return static_cast<float>(value); }
__device__ __forceinline__ float to_float(i32 value) { return static_cast<float>(value); }
__device__ __forceinline__ float to_float(i64 value) { return static_cast<float>(value); }
__device__ __forceinline__ float to_float(u8 value) { return static_cast<float>(value); }
__device__ __forceinline__ float to_float(u16 value) { return static_cast<float>(value); }
__device__ __forceinline__ float to_float(u32 value) { return static_cast<float>(value); }
__device__ __forceinline__ float to_float(u64 value) { return static_cast<float>(value); }
__device__ __forceinline__ float to_float(bool value) { return value ? 1.0f : 0.0f; }

// Rounds to odd: with the sticky last bit, a second rounding, to a smaller float, is correct.
__device__ __forceinline__ float narrow_to_odd(double value) {
  const float toward_zero = __double2float_rz(value);
  const u32 inexact = static_cast<double>(toward_zero) != value ? 1u : 0u;
  return __uint_as_float(__float_as_uint(toward_zero) | inexact);
}

template <class To>
__device__ __forceinline__ To round_to_small(float value) {
  To result;
  if constexpr (kIsSame<To, f16>) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  } else if constexpr (kIsSame<To, bf16>) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  } else if constexpr (kIsSame<To, f8e4m3>) {
    result = float_to_f8e4m3(value);
  } else {
    result = float_to_f8e5m2(value);
  }
  return result;
}

// Rounds toward zero; values out of range saturate and NaN becomes 0. A plain cast of such values
// would be undefined.
__device__ __forceinline__ i32 nearest_i32(float value) { return __float2int_rz(value); }
__device__ __forceinline__ i32 nearest_i32(double value) {
  return value == value ? __double2int_rz(value) : 0;
}
__device__ __forceinline__ i64 nearest_i64(float value) {
  return value == value ? __float2ll_rz(value) : 0;
}
__device__ __forceinline__ i64 nearest_i64(double value) {
  return value == value ? __double2ll_rz(value) : 0;
}
__device__ __forceinline__ u64 nearest_u64(float value) {
  return value == value ? __float2ull_rz(value) : 0;
}
__device__ __forceinline__ u64 nearest_u64(double value) {
  return value == value ? __double2ull_rz(value) : 0;
}

// Values outside a narrow integer wrap modulo its width, as in PyTorch; wide integers saturate.
template <class To, class From>
__device__ __forceinline__ To truncate_to_integer(From value) {
  if constexpr (kIsSame<To, i32>) {
    return nearest_i32(value);
  } else if constexpr (kIsSame<To, u64>) {
    return value < From(0) ? static_cast<u64>(nearest_i64(value)) : nearest_u64(value);
  } else if constexpr (sizeof(To) >= 4) {
    return static_cast<To>(nearest_i64(value));
  } else {
    return static_cast<To>(nearest_i32(value));
  }
}

template <class To, class From>
__device__ __forceinline__ To convert(From value) {
  if constexpr (kIsSame<To, From>) {
    return value;
  } else if constexpr (kIsSmallFloat<From>) {
    return convert<To>(to_float(value));
  } else if constexpr (kIsSame<To, bool>) {
    return value != From(0);
  } else if constexpr (kIsSmallFloat<To> && kIsSame<From, double>) {
    return round_to_small<To>(narrow_to_odd(value));
  } else if constexpr (kIsSmallFloat<To>) {
    return round_to_small<To>(to_float(value));
  } else if constexpr (kIsFloat<To> || !kIsFloat<From>) {
    return static_cast<To>(value);
  } else {
    return truncate_to_integer<To>(value);
  }
}

}  // namespace fusec
