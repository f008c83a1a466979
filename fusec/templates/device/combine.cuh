// Combiners: what a reduction does with two partial results. Passed as the Op of the functions of
// reduce.cuh: a struct with `static T identity()` and `static T combine(T, T)`. Max and Min keep
// NaN, as PyTorch's amax and amin do. Any and All work on bool; Any also on integers, as a bitwise
// or.
#pragma once

#include "storage.cuh"
#include "wrap.cuh"

namespace fusec {

template <class T>
__device__ __forceinline__ T max_keeping_nan(T a, T b) {
  if constexpr (kIsSame<T, float>) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
  } else if constexpr (kIsSame<T, double>) {
    return a > b || a != a ? a : b;
  } else {
    return a > b ? a : b;
  }
}

template <class T>
__device__ __forceinline__ T min_keeping_nan(T a, T b) {
  if constexpr (kIsSame<T, float>) {
    float result;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
  } else if constexpr (kIsSame<T, double>) {
    return a < b || a != a ? a : b;
  } else {
    return a < b ? a : b;
  }
}

template <class T>
struct Sum {
  using type = T;
  __device__ __forceinline__ static T identity() { return T(0); }
  __device__ __forceinline__ static T combine(T a, T b) {
    if constexpr (kIsInteger<T>) return wrapping_add(a, b);
    return a + b;
  }
};

template <class T>
struct Prod {
  using type = T;
  __device__ __forceinline__ static T identity() { return T(1); }
  __device__ __forceinline__ static T combine(T a, T b) {
    if constexpr (kIsInteger<T>) return wrapping_mul(a, b);
    return a * b;
  }
};

template <class T>
struct Max {
  using type = T;
  __device__ __forceinline__ static T identity() { return Limits<T>::lowest(); }
  __device__ __forceinline__ static T combine(T a, T b) { return max_keeping_nan(a, b); }
};

template <class T>
struct Min {
  using type = T;
  __device__ __forceinline__ static T identity() { return Limits<T>::highest(); }
  __device__ __forceinline__ static T combine(T a, T b) { return min_keeping_nan(a, b); }
};

template <class T = bool>
struct Any {
  using type = T;
  __device__ __forceinline__ static T identity() { return T(0); }
  __device__ __forceinline__ static T combine(T a, T b) { return a | b; }
};

template <class T = bool>
struct All {
  using type = T;
  __device__ __forceinline__ static T identity() { return Limits<T>::highest(); }
  __device__ __forceinline__ static T combine(T a, T b) { return a & b; }
};

// A value and where it was found; ties go to the lower index, NaN beats every number.
template <class T>
struct Indexed {
  T value;
  i64 index;
  // The index; 0 where nothing beat the identity, as then all values are the same (or there are
  // none).
  __device__ __forceinline__ i64 position() const {
    return index == Limits<i64>::highest() ? 0 : index;
  }
};

template <class T>
struct ArgMax {
  using type = Indexed<T>;
  __device__ __forceinline__ static type identity() {
    return {Limits<T>::lowest(), Limits<i64>::highest()};
  }
  // Takes the next value of a thread, whose indices grow: only what beats the part so far.
  __device__ __forceinline__ static void take(type& part, T value, i64 index) {
    if (!(value <= part.value) && part.value == part.value) part = {value, index};
  }
  __device__ __forceinline__ static type combine(type a, type b) {
    const bool a_nan = a.value != a.value;
    const bool b_nan = b.value != b.value;
    if (a_nan != b_nan) return a_nan ? a : b;
    if (!a_nan && a.value != b.value) return a.value > b.value ? a : b;
    return a.index < b.index ? a : b;
  }
};

template <class T>
struct ArgMin {
  using type = Indexed<T>;
  __device__ __forceinline__ static type identity() {
    return {Limits<T>::highest(), Limits<i64>::highest()};
  }
  // Takes the next value of a thread, whose indices grow: only what beats the part so far.
  __device__ __forceinline__ static void take(type& part, T value, i64 index) {
    if (!(value >= part.value) && part.value == part.value) part = {value, index};
  }
  __device__ __forceinline__ static type combine(type a, type b) {
    const bool a_nan = a.value != a.value;
    const bool b_nan = b.value != b.value;
    if (a_nan != b_nan) return a_nan ? a : b;
    if (!a_nan && a.value != b.value) return a.value < b.value ? a : b;
    return a.index < b.index ? a : b;
  }
};

}  // namespace fusec
