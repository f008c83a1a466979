// Fixed-width integers, storage types of the small floats, and the type traits that the other
// headers need. The small floats hold bits and have no arithmetic: kernels convert to float,
// compute, and round once. Every other header includes this one; kernels include types.cuh, which
// adds the conversions.
#pragma once

// The two macros of <math.h> that NVRTC does not define.
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif

namespace fusec {

using i8 = signed char;
using i16 = short;
using i32 = int;
using i64 = long long;
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// IEEE half: 5 exponent bits, 10 mantissa bits.
struct f16 {
  u16 bits;
};

// bfloat16: the upper half of a float.
struct bf16 {
  u16 bits;
};

// 4 exponent bits, 3 mantissa bits, no infinity; 0x7f and 0xff are NaN, the largest value is 448.
struct f8e4m3 {
  u8 bits;
};

// 5 exponent bits, 2 mantissa bits, the upper half of an f16; the largest finite value is 57344.
struct f8e5m2 {
  u8 bits;
};

template <class A, class B>
struct IsSame {
  static constexpr bool value = false;
};

template <class A>
struct IsSame<A, A> {
  static constexpr bool value = true;
};

template <class A, class B>
inline constexpr bool kIsSame = IsSame<A, B>::value;

template <class T>
inline constexpr bool kIsSmallFloat =
    kIsSame<T, f16> || kIsSame<T, bf16> || kIsSame<T, f8e4m3> || kIsSame<T, f8e5m2>;

template <class T>
inline constexpr bool kIsFloat = kIsSmallFloat<T> || kIsSame<T, float> || kIsSame<T, double>;

// Lowest and highest value of each type that reductions compute in; infinities for floats.
template <class T>
struct Limits {
  static constexpr bool kSigned = T(-1) < T(0);
  static constexpr T kHighest = kSigned ? T((1ull << (8 * sizeof(T) - 1)) - 1) : T(~0ull);
  __device__ __forceinline__ static T highest() { return kHighest; }
  __device__ __forceinline__ static T lowest() { return kSigned ? T(-kHighest - 1) : T(0); }
};

template <>
struct Limits<float> {
  __device__ __forceinline__ static float highest() { return INFINITY; }
  __device__ __forceinline__ static float lowest() { return -INFINITY; }
};

template <>
struct Limits<double> {
  __device__ __forceinline__ static double highest() { return INFINITY; }
  __device__ __forceinline__ static double lowest() { return -INFINITY; }
};

template <>
struct Limits<bool> {
  __device__ __forceinline__ static bool highest() { return true; }
  __device__ __forceinline__ static bool lowest() { return false; }
};

}  // namespace fusec
