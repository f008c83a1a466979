// Welford's running mean and sum of squared deviations, and the combiner that merges two of them
// (Chan, Golub and LeVeque's formula). A thread pushes its values, then the block merges with
// block_reduce<WelfordMerge<float>, kThreads>(state). Variance is m2 / (n - correction). n is
// stored as T: exact in float up to 2^24 values.
#pragma once

#include "fast_math.cuh"
#include "storage.cuh"

namespace fusec {

// Returns 1 / n for a count n of at least 1: in float within 0.6 ulp, by one step of Newton's
// method from the approximation, without the slow path of a division.
__device__ __forceinline__ float reciprocal_of_count(float n) {
  const float near = reciprocal_approx(n);
  return fmaf(near, fmaf(-n, near, 1.0f), near);
}
__device__ __forceinline__ double reciprocal_of_count(double n) { return 1.0 / n; }

template <class T>
struct Welford {
  T mean;
  T m2;
  T n;

  __device__ __forceinline__ static Welford empty() { return {T(0), T(0), T(0)}; }

  __device__ __forceinline__ void push(T value) {
    n += T(1);
    const T delta = value - mean;
    mean += delta * reciprocal_of_count(n);
    m2 += delta * (value - mean);
  }

  // Pushes a value with the reciprocal of the new count, if the caller has it: saves the division.
  __device__ __forceinline__ void push(T value, T reciprocal_of_count) {
    n += T(1);
    const T delta = value - mean;
    mean += delta * reciprocal_of_count;
    m2 += delta * (value - mean);
  }

  // Pushes several values at once: computes their own mean and squared deviations and merges these.
  template <int kCount>
  __device__ __forceinline__ void push(const T (&values)[kCount]) {
    constexpr T kShare = T(1) / T(kCount);
    T own = values[0] * kShare;
#pragma unroll
    for (int i = 1; i < kCount; ++i) own += values[i] * kShare;
    T squares = T(0);
#pragma unroll
    for (int i = 0; i < kCount; ++i) squares += (values[i] - own) * (values[i] - own);
    const T before = n;
    n += T(kCount);
    const T delta = own - mean;
    const T share = T(kCount) * reciprocal_of_count(n);
    mean += delta * share;
    m2 += squares + delta * delta * before * share;
  }

  // As in PyTorch, without degrees of freedom this is 0 / 0 or a / 0, also if the correction
  // exceeds n.
  __device__ __forceinline__ T variance(T correction) const {
    const T freedom = n - correction;
    return m2 / (freedom > T(0) ? freedom : T(0));
  }
};

template <class T>
struct WelfordMerge {
  using type = Welford<T>;
  __device__ __forceinline__ static Welford<T> identity() { return Welford<T>::empty(); }
  __device__ __forceinline__ static Welford<T> combine(Welford<T> a, Welford<T> b) {
    const T n = a.n + b.n;
    // Two empty states stay empty; the share of b is then 0 instead of 0 / 0.
    const T share = n == T(0) ? T(0) : b.n * reciprocal_of_count(n);
    const T delta = b.mean - a.mean;
    return {a.mean + delta * share, a.m2 + b.m2 + delta * delta * a.n * share, n};
  }
};

template <class T>
__device__ __forceinline__ Welford<T> combine(Welford<T> a, Welford<T> b) {
  return WelfordMerge<T>::combine(a, b);
}

}  // namespace fusec
