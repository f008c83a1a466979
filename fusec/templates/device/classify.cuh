// Classification of numbers, for every element type of computations. Called by generated
// expressions, as fusec::isnan(v), and by math.cuh.
#pragma once

#include "storage.cuh"

namespace fusec {

// Returns value < 0; false for unsigned types, without a compiler warning.
template <class T>
__device__ __forceinline__ bool is_negative(T value) {
  if constexpr (T(-1) < T(0)) return value < T(0);
  return false;
}

// Classification, defined for every type; integers are always finite.
template <class T>
__device__ __forceinline__ bool isnan(T value) {
  return value != value;
}
template <class T>
__device__ __forceinline__ bool isposinf(T value) {
  if constexpr (kIsFloat<T>) return value == T(INFINITY);
  return false;
}
template <class T>
__device__ __forceinline__ bool isneginf(T value) {
  if constexpr (kIsFloat<T>) return value == -T(INFINITY);
  return false;
}
template <class T>
__device__ __forceinline__ bool isinf(T value) {
  return isposinf(value) || isneginf(value);
}
template <class T>
__device__ __forceinline__ bool isfinite(T value) {
  return !isnan(value) && !isinf(value);
}
template <class T>
__device__ __forceinline__ bool isreal(T) {
  return true;
}
// False for NaN, whose sign no operation defines.
template <class T>
__device__ __forceinline__ bool signbit(T value) {
  if constexpr (kIsSame<T, float>) return !isnan(value) && (__float_as_uint(value) >> 31) != 0;
  if constexpr (kIsSame<T, double>) return !isnan(value) && __double2hiint(value) < 0;
  return is_negative(value);
}

}  // namespace fusec
