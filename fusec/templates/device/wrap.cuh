// Integer arithmetic that wraps, as PyTorch's does: computed in unsigned integers, since C++ leaves
// signed overflow undefined. For data; indices do not overflow.
#pragma once

#include "storage.cuh"

namespace fusec {

template <class T>
inline constexpr bool kIsInteger =
    kIsSame<T, i8> || kIsSame<T, i16> || kIsSame<T, i32> || kIsSame<T, i64> || kIsSame<T, u8> ||
    kIsSame<T, u16> || kIsSame<T, u32> || kIsSame<T, u64>;

template <bool kWide>
struct ModularOf {
  using type = u32;
};
template <>
struct ModularOf<true> {
  using type = u64;
};

// The unsigned type in which T is computed.
template <class T>
using Modular = typename ModularOf<(sizeof(T) > 4)>::type;

template <class T>
__device__ __forceinline__ T wrapping_add(T a, T b) {
  return static_cast<T>(static_cast<Modular<T>>(a) + static_cast<Modular<T>>(b));
}

template <class T>
__device__ __forceinline__ T wrapping_sub(T a, T b) {
  return static_cast<T>(static_cast<Modular<T>>(a) - static_cast<Modular<T>>(b));
}

template <class T>
__device__ __forceinline__ T wrapping_mul(T a, T b) {
  return static_cast<T>(static_cast<Modular<T>>(a) * static_cast<Modular<T>>(b));
}

template <class T>
__device__ __forceinline__ T wrapping_neg(T a) {
  return static_cast<T>(Modular<T>(0) - static_cast<Modular<T>>(a));
}

// Returns the absolute value of a signed integer; the lowest one has none and is unchanged.
template <class T>
__device__ __forceinline__ T wrapping_abs(T a) {
  return a < T(0) ? wrapping_neg(a) : a;
}

}  // namespace fusec
