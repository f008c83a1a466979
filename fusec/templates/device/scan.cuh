// Prefix scans: inclusive ones over the lanes of a warp and over the vectors that a warp holds, and
// the exclusive prefix of a warp or a thread in its block. Op is one of the combiners of
// combine.cuh. The order of combination is fixed, so results are reproducible. Each function is
// called by all threads of the block; no barrier is needed between calls.
#pragma once

#include "combine.cuh"
#include "shuffle.cuh"
#include "vector.cuh"

namespace fusec {

// Returns the inclusive prefix over groups of kWidth adjacent lanes; kWidth is a power of two that
// divides blockDim.x.
template <class Op, int kWidth = 32, class T>
__device__ __forceinline__ T warp_scan(T value) {
  static_assert(kWidth >= 1 && kWidth <= 32 && (kWidth & (kWidth - 1)) == 0);
#pragma unroll
  for (int distance = 1; distance < kWidth; distance *= 2) {
    const T below = shuffle_up<kWidth>(value, distance);
    if (static_cast<int>(threadIdx.x) % kWidth >= distance) value = Op::combine(below, value);
  }
  return value;
}

// Scans the span of kLanes adjacent lanes: their adjacent vectors of chunk 0, then those of chunk
// 1, and so on. Every element becomes its inclusive prefix; all lanes get the total.
template <class Op, int kLanes, class T, int kVec, int kChunks>
__device__ __forceinline__ T scan_span(Vec<T, kVec> (&part)[kChunks]) {
  T inclusive[kChunks];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int v = 1; v < kVec; ++v) part[c][v] = Op::combine(part[c][v - 1], part[c][v]);
    inclusive[c] = warp_scan<Op, kLanes>(part[c][kVec - 1]);
  }
  T carry = shuffle_from<kLanes>(inclusive[0], kLanes - 1);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const bool first = threadIdx.x % kLanes == 0;
    T before = shuffle_up<kLanes>(inclusive[c], 1);
    if (c > 0) {
      before = first ? carry : Op::combine(carry, before);
      carry = Op::combine(carry, shuffle_from<kLanes>(inclusive[c], kLanes - 1));
    }
    if (c > 0 || !first) {
#pragma unroll
      for (int v = 0; v < kVec; ++v) part[c][v] = Op::combine(before, part[c][v]);
    }
  }
  return carry;
}

// For each threadIdx.y of a kThreadsX x kThreadsY block: returns the exclusive prefix of this
// warp's span, from the totals of the spans and the carry of the row, to which the row's total is
// then added.
template <class Op, int kThreadsX, int kThreadsY, class T>
__device__ __forceinline__ T scan_warps(T total, T& carry) {
  if constexpr (kThreadsX <= 32) {
    const T before = carry;
    carry = Op::combine(carry, total);
    return before;
  } else {
    constexpr int kWarps = kThreadsX / 32;
    __shared__ T totals[kThreadsY][kWarps];
    const int row = kThreadsY == 1 ? 0 : threadIdx.y;
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) totals[row][warp] = total;
    __syncthreads();
    T before = carry;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w == warp) before = carry;
      carry = Op::combine(carry, totals[row][w]);
    }
    __syncthreads();
    return before;
  }
}

// For each threadIdx.x of a kThreadsX x kThreadsY block, element by element: returns the exclusive
// prefix of threadIdx.y, from the totals of the lower ones and the carry, to which all are then
// added.
template <class Op, int kThreadsX, int kThreadsY, class T, int N>
__device__ __forceinline__ Vec<T, N> scan_threads_y(const Vec<T, N>& total, Vec<T, N>& carry) {
  Vec<T, N> before = carry;
  if constexpr (kThreadsY == 1) {
#pragma unroll
    for (int i = 0; i < N; ++i) carry[i] = Op::combine(carry[i], total[i]);
  } else {
    __shared__ Vec<T, N> totals[kThreadsY][kThreadsX];
    totals[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    for (int y = 0; y < kThreadsY; ++y) {
      const Vec<T, N> other = totals[y][threadIdx.x];
      if (y == static_cast<int>(threadIdx.y)) before = carry;
#pragma unroll
      for (int i = 0; i < N; ++i) carry[i] = Op::combine(carry[i], other[i]);
    }
    __syncthreads();
  }
  return before;
}

}  // namespace fusec
