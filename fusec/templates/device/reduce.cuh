// Reductions over a warp, a block, and the rows or the columns of a two-dimensional block. Op is
// one of the combiners of combine.cuh or welford.cuh. Each function is called by all threads of the
// block, which all get the result. The order of combination is fixed, so results are reproducible.
// No barrier is needed between calls: each returns only when its shared memory may be reused.
#pragma once

#include "combine.cuh"
#include "shuffle.cuh"
#include "vector.cuh"

namespace fusec {

// Reduces over groups of kWidth adjacent lanes (a power of two); every lane gets its group's
// result.
template <class Op, int kWidth = 32, class T>
__device__ __forceinline__ T warp_reduce(T value) {
  static_assert(kWidth >= 1 && kWidth <= 32 && (kWidth & (kWidth - 1)) == 0);
#pragma unroll
  for (int distance = kWidth / 2; distance > 0; distance /= 2) {
    value = Op::combine(value, shuffle_xor(value, distance));
  }
  return value;
}

// Reduces each element of a small array over adjacent lanes.
template <class Op, int kWidth = 32, class T, int N>
__device__ __forceinline__ Vec<T, N> warp_reduce(Vec<T, N> values) {
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] = warp_reduce<Op, kWidth>(values[i]);
  return values;
}

// Combines arrays element by element, and single values.
template <class Op, class T>
__device__ __forceinline__ T combine_each(T a, T b) {
  return Op::combine(a, b);
}
template <class Op, class T, int N>
__device__ __forceinline__ Vec<T, N> combine_each(Vec<T, N> a, const Vec<T, N>& b) {
#pragma unroll
  for (int i = 0; i < N; ++i) a[i] = Op::combine(a[i], b[i]);
  return a;
}

// Combines the partial results of a row's warps, in their order. If they are expensive to combine,
// and the result is independent of the order, the lanes of each warp combine them together.
template <class Op, int kWarps, class T>
__device__ __forceinline__ T combine_warps(const T* partials) {
  constexpr bool kTogether = kIsIndexed<T> && (kWarps & (kWarps - 1)) == 0;
  T value = partials[0];
  if constexpr (kTogether) {
    value = warp_reduce<Op, kWarps>(partials[threadIdx.x % kWarps]);
  } else {
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) value = combine_each<Op>(value, partials[warp]);
  }
  return value;
}

// Reduces over threadIdx.x for each threadIdx.y of a kThreadsX x kThreadsY block. kThreadsX is a
// power of two up to 32, or a multiple of 32 up to 1024; the block has whole warps.
template <class Op, int kThreadsX, int kThreadsY, class T>
__device__ __forceinline__ T block_reduce_rows(T value) {
  static_assert(kThreadsX * kThreadsY % 32 == 0 && kThreadsX * kThreadsY <= 1024);
  if constexpr (kThreadsX <= 32) {
    return warp_reduce<Op, kThreadsX>(value);
  } else {
    static_assert(kThreadsX % 32 == 0);
    constexpr int kWarps = kThreadsX / 32;
    __shared__ T partials[kThreadsY][kWarps];
    const int row = kThreadsY == 1 ? 0 : threadIdx.y;
    value = warp_reduce<Op>(value);
    if (threadIdx.x % 32 == 0) partials[row][threadIdx.x / 32] = value;
    __syncthreads();
    value = combine_warps<Op, kWarps>(partials[row]);
    __syncthreads();
    return value;
  }
}

// Reduces over the kThreads threads of a one-dimensional block of whole warps.
template <class Op, int kThreads, class T>
__device__ __forceinline__ T block_reduce(T value) {
  return block_reduce_rows<Op, kThreads, 1>(value);
}

// Reduces over threadIdx.y for each threadIdx.x of a kThreadsX x kThreadsY block.
template <class Op, int kThreadsX, int kThreadsY, class T>
__device__ __forceinline__ T block_reduce_columns(T value) {
  if constexpr (kThreadsY > 1) {
    __shared__ T upper[(kThreadsY + 1) / 2][kThreadsX];
#pragma unroll
    for (int rows = kThreadsY; rows > 1; rows = (rows + 1) / 2) {
      const int half = (rows + 1) / 2;
      const int row = threadIdx.y;
      if (row >= half && row < rows) upper[row - half][threadIdx.x] = value;
      __syncthreads();
      if (row < rows - half) value = combine_each<Op>(value, upper[row][threadIdx.x]);
      __syncthreads();
    }
    if (threadIdx.y == 0) upper[0][threadIdx.x] = value;
    __syncthreads();
    value = upper[0][threadIdx.x];
    __syncthreads();
  }
  return value;
}

}  // namespace fusec
