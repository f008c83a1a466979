// Combiners: how a reduction merges two partial results. Passed as the Op of the functions of
// reduce.cuh: a struct with `static T identity()` and `static T combine(T, T)`. Max and Min
// propagate NaN, as PyTorch's amax and amin do. Any and All work on bool; Any also on integers, as
// a bitwise or.
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

// A value and its index. The lower index wins ties, NaN beats every number. I is the type of
// indices.
template <class T, class I = i64>
struct Indexed {
  T value;
  I index;
  // Returns the index; 0 if nothing beat the identity, since all values are then equal (or there
  // are none).
  __device__ __forceinline__ i64 position() const {
    return index == Limits<I>::highest() ? 0 : index;
  }
};

// Returns whether the values are equal, or both NaN, and the second has the lower index.
template <class T, class I>
__device__ __forceinline__ bool ties_lower(const Indexed<T, I>& a, const Indexed<T, I>& b) {
  const bool level = (a.value == b.value) | ((a.value != a.value) & (b.value != b.value));
  return level & (b.index < a.index);
}

template <class T, class I = i64>
struct ArgMax {
  using type = Indexed<T, I>;
  __device__ __forceinline__ static type identity() {
    return {Limits<T>::lowest(), Limits<I>::highest()};
  }
  __device__ __forceinline__ static bool beats(T value, T other) {
    return !(value <= other) & (other == other);
  }
  // Updates a thread's partial result with its next value. Indices increase, so ties keep the old
  // one.
  __device__ __forceinline__ static void take(type& part, T value, I index) {
    if (beats(value, part.value)) part = {value, index};
  }
  // Merges partial results in any order.
  __device__ __forceinline__ static type combine(type a, type b) {
    return beats(b.value, a.value) | ties_lower(a, b) ? b : a;
  }
};

template <class T, class I = i64>
struct ArgMin {
  using type = Indexed<T, I>;
  __device__ __forceinline__ static type identity() {
    return {Limits<T>::highest(), Limits<I>::highest()};
  }
  __device__ __forceinline__ static bool beats(T value, T other) {
    return !(value >= other) & (other == other);
  }
  // Updates a thread's partial result with its next value. Indices increase, so ties keep the old
  // one.
  __device__ __forceinline__ static void take(type& part, T value, I index) {
    if (beats(value, part.value)) part = {value, index};
  }
  // Merges partial results in any order.
  __device__ __forceinline__ static type combine(type a, type b) {
    return beats(b.value, a.value) | ties_lower(a, b) ? b : a;
  }
};

// Whether partial results are expensive to combine, with a result that is independent of the order.
template <class T>
inline constexpr bool kIsIndexed = false;
template <class T, class I>
inline constexpr bool kIsIndexed<Indexed<T, I>> = true;

}  // namespace fusec
