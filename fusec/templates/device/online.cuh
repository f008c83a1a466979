// Online softmax: the maximum of values and the sum of exp(value - maximum) in one pass, where the
// sum is rescaled when the maximum grows. A thread pushes its values, a vector at a time with one
// rescaling per vector; then the block merges with block_reduce<ExpSumMerge<float>,
// kThreads>(state). The sum is 0 until a value above -inf is pushed. The result is NaN if all
// values are -inf, or any is NaN or +inf, as exp(x - max) of each value is.
#pragma once

#include "combine.cuh"
#include "fast_math.cuh"

namespace fusec {

// The term of the maximum is exactly 1; other terms have an absolute error below 3 * 2^-23.
__device__ __forceinline__ float exponential(float x) { return exp_approx(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }

template <class T>
struct ExpSum {
  T top;
  T total;

  template <int kCount>
  __device__ __forceinline__ void push(const T (&values)[kCount]) {
    T most = top;
#pragma unroll
    for (int i = 0; i < kCount; ++i) most = max_keeping_nan(most, values[i]);
    // -inf - -inf would be NaN.
    const T shift = most == Limits<T>::lowest() ? T(0) : most;
    total *= exponential(top - shift);
#pragma unroll
    for (int i = 0; i < kCount; ++i) total += exponential(values[i] - shift);
    top = most;
  }

  __device__ __forceinline__ void push(T value) {
    const T values[1] = {value};
    push(values);
  }

  __device__ __forceinline__ T sum() const {
    return top == Limits<T>::lowest() ? top - top : total;
  }
};

// Merges two states; the order of the two does not change a bit of the result.
template <class T>
struct ExpSumMerge {
  using type = ExpSum<T>;
  __device__ __forceinline__ static ExpSum<T> identity() { return {Limits<T>::lowest(), T(0)}; }
  __device__ __forceinline__ static ExpSum<T> combine(ExpSum<T> a, ExpSum<T> b) {
    const ExpSum<T> upper = a.top >= b.top ? a : b;
    const ExpSum<T> lower = a.top >= b.top ? b : a;
    if (lower.top == Limits<T>::lowest()) return upper;
    const T top = max_keeping_nan(upper.top, lower.top);
    return {top, upper.total + lower.total * exponential(lower.top - top)};
  }
};

}  // namespace fusec
