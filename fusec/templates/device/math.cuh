// Scalar functions with PyTorch's semantics that CUDA C++ lacks or defines otherwise.
// Floating-point ones exist for float and double, integer ones for every integer type. Generated
// expressions call them as fusec::name, since several share their name with a CUDA function.
#pragma once

#include "classify.cuh"
#include "combine.cuh"
#include "storage.cuh"
#include "wrap.cuh"

namespace fusec {

#define FUSEC_EACH_FLOAT(FUNCTION) FUNCTION(float, f) FUNCTION(double, )

// Propagates NaN, as torch.maximum does; max.NaN is one instruction for float.
template <class T>
__device__ __forceinline__ T maximum(T a, T b) {
  return max_keeping_nan(a, b);
}
template <class T>
__device__ __forceinline__ T minimum(T a, T b) {
  return min_keeping_nan(a, b);
}

// Propagates NaN, as torch.clamp does.
template <class T>
__device__ __forceinline__ T clamp(T value, T low, T high) {
  return minimum(maximum(value, low), high);
}

// Returns the remainder with the sign of the dividend (C, torch.fmod); for integers, 0 if b is 0.
__device__ __forceinline__ float fmod(float a, float b) { return ::fmodf(a, b); }
__device__ __forceinline__ double fmod(double a, double b) { return ::fmod(a, b); }
template <class T>
__device__ __forceinline__ T fmod(T a, T b) {
  // The quotient of the lowest integer and -1 would overflow.
  return b == T(0) || (Limits<T>::kSigned && b == T(-1)) ? T(0) : static_cast<T>(a % b);
}

// Returns the quotient within 2 ulp over the whole range (PTX div.full), with a third of the
// instructions of the correctly rounded one.
__device__ __forceinline__ float divide(float a, float b) {
  float quotient;
  asm("div.full.f32 %0, %1, %2;" : "=f"(quotient) : "f"(a), "f"(b));
  return quotient;
}

// Returns the quotient rounded towards zero. Integers divided by zero give zero, instead of the
// unspecified result of the hardware, and the lowest one divided by -1 wraps to itself.
__device__ __forceinline__ float truncated_divide(float a, float b) { return truncf(a / b); }
__device__ __forceinline__ double truncated_divide(double a, double b) { return trunc(a / b); }
template <class T>
__device__ __forceinline__ T truncated_divide(T a, T b) {
  if (Limits<T>::kSigned && b == T(-1)) return wrapping_neg(a);
  return b == T(0) ? T(0) : static_cast<T>(a / b);
}

// Returns the remainder with the sign of the divisor (Python, torch.remainder).
template <class T>
__device__ __forceinline__ T remainder(T a, T b) {
  const T rest = fmod(a, b);
  return rest != T(0) && is_negative(rest) != is_negative(b) ? static_cast<T>(rest + b) : rest;
}

// Returns the quotient rounded towards minus infinity (Python's //). For floats, the remainder is
// subtracted before the division, and the quotient is rounded to the integer that it must be.
template <class T>
__device__ __forceinline__ T floor_divide(T a, T b) {
  if constexpr (kIsFloat<T>) {
    if (b == T(0)) return a / b;
    T quotient = (a - fmod(a, b)) / b;
    const T rest = fmod(a, b);
    if (rest != T(0) && is_negative(rest) != is_negative(b)) quotient -= T(1);
    if (quotient == T(0)) return is_negative(a / b) ? T(-0.0) : T(0);
    T whole = floor(quotient);
    if (quotient - whole > T(0.5)) whole += T(1);
    return whole;
  } else {
    const T quotient = truncated_divide(a, b);
    const bool inexact = b != T(0) && wrapping_mul(quotient, b) != a;
    return inexact && is_negative(a) != is_negative(b) ? static_cast<T>(quotient - 1) : quotient;
  }
}

// Returns the quotient rounded up, for nonnegative integers.
template <class T>
__device__ __forceinline__ T ceil_divide(T a, T b) {
  return floor_divide(wrapping_sub(wrapping_add(a, b), T(1)), b);
}

// Floats: CUDA's pow, but squares and cubes are products, a test that is free for a constant
// exponent. Integers: by squaring; the result of a negative exponent is truncated to an integer, 0
// for base 0.
__device__ __forceinline__ float pow(float base, float exponent) {
  if (exponent == 2.0f) return base * base;
  if (exponent == 3.0f) return base * base * base;
  return ::powf(base, exponent);
}
__device__ __forceinline__ double pow(double base, double exponent) {
  if (exponent == 2.0) return base * base;
  if (exponent == 3.0) return base * base * base;
  return ::pow(base, exponent);
}
template <class T>
__device__ __forceinline__ T pow(T base, T exponent) {
  if (is_negative(exponent)) {
    if (base == T(1)) return T(1);
    if (base == T(-1)) return exponent % 2 == 0 ? T(1) : T(-1);
    return T(0);
  }
  T result = 1;
  while (exponent != T(0)) {
    if (exponent & 1) result = wrapping_mul(result, base);
    base = wrapping_mul(base, base);
    exponent = static_cast<T>(exponent >> 1);
  }
  return result;
}

// Returns the nonnegative greatest common divisor.
template <class T>
__device__ __forceinline__ T gcd(T a, T b) {
  while (b != T(0)) {
    const T rest = fmod(a, b);
    a = b;
    b = rest;
  }
  return is_negative(a) ? wrapping_neg(a) : a;
}

// Returns -1, 0 or 1; 0 for NaN, as torch.sign does.
template <class T>
__device__ __forceinline__ T sign(T value) {
  return static_cast<T>((value > T(0)) - is_negative(value));
}

template <class T>
__device__ __forceinline__ T relu(T value) {
  return maximum(value, T(0));
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
template <class T>
__device__ __forceinline__ T silu(T x) {
  return x * sigmoid(x);
}

__device__ __forceinline__ float reciprocal(float x) { return 1.0f / x; }
__device__ __forceinline__ double reciprocal(double x) { return 1.0 / x; }

// Returns the fractional part with the sign of x (torch.frac).
__device__ __forceinline__ float frac(float x) { return x - ::truncf(x); }
__device__ __forceinline__ double frac(double x) { return x - ::trunc(x); }

// Rounds half to even, as torch.round does.
__device__ __forceinline__ float round_half_even(float x) { return rintf(x); }
__device__ __forceinline__ double round_half_even(double x) { return rint(x); }

// PyTorch's formula, which is exact at both ends.
template <class T>
__device__ __forceinline__ T lerp(T start, T end, T weight) {
  return fabs(weight) < T(0.5) ? start + weight * (end - start)
                               : end - (end - start) * (T(1) - weight);
}

// Overloads for float and double of functions that CUDA names by type.
#define FUSEC_WRAP(TYPE, SUFFIX)                                                                  \
  __device__ __forceinline__ TYPE erfinv(TYPE x) { return ::erfinv##SUFFIX(x); }                  \
  __device__ __forceinline__ TYPE erfcinv(TYPE x) { return ::erfcinv##SUFFIX(x); }                \
  __device__ __forceinline__ TYPE nextafter(TYPE a, TYPE b) { return ::nextafter##SUFFIX(a, b); } \
  __device__ __forceinline__ TYPE ieee_remainder(TYPE a, TYPE b) {                                \
    return ::remainder##SUFFIX(a, b);                                                             \
  }
FUSEC_EACH_FLOAT(FUSEC_WRAP)
#undef FUSEC_WRAP
#undef FUSEC_EACH_FLOAT

// Shifts by any distance. In C++, negative distances and those of at least the width are undefined;
// here they shift out every bit.
template <class T>
__device__ __forceinline__ bool within_width(T distance) {
  return static_cast<Modular<T>>(distance) < 8 * sizeof(T);
}

template <class T>
__device__ __forceinline__ T left_shift(T value, T distance) {
  return within_width(distance) ? static_cast<T>(static_cast<Modular<T>>(value) << distance) : T(0);
}

// Arithmetic shift: shifts in copies of the sign bit.
template <class T>
__device__ __forceinline__ T right_shift(T value, T distance) {
  constexpr int kMost = 8 * sizeof(T) - 1;
  return static_cast<T>(within_width(distance) ? value >> distance : value >> kMost >> 1);
}

// Logical shift: shifts in zeros for both signs.
template <class T>
__device__ __forceinline__ T logical_right_shift(T value, T distance) {
  // A negative narrow integer is sign-extended; those bits must not be shifted in.
  constexpr Modular<T> kBits = static_cast<Modular<T>>(~0ull >> (64 - 8 * sizeof(T)));
  return within_width(distance)
             ? static_cast<T>((static_cast<Modular<T>>(value) & kBits) >> distance)
             : T(0);
}

}  // namespace fusec
