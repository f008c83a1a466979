// A reduction over the rows of a one-dimensional block, viewed as kThreadsY rows of kThreadsX
// threads, for each position in a row. For kernels whose blocks have another shape. Called by all
// threads of the block; the results are in the first row. The order of combination is fixed.
#pragma once

#include "reduce.cuh"

namespace fusec {

// kThreadsY is a power of two; the block has kThreadsX * kThreadsY threads.
template <class Op, int kThreadsX, int kThreadsY, class T>
__device__ __forceinline__ T block_reduce_strided(T value) {
  static_assert((kThreadsY & (kThreadsY - 1)) == 0 && kThreadsX * kThreadsY <= 1024);
  if constexpr (kThreadsY > 1) {
    __shared__ T upper[kThreadsX * kThreadsY / 2];
    const int thread = threadIdx.x;
#pragma unroll
    for (int rows = kThreadsY; rows > 1; rows /= 2) {
      const int half = rows / 2 * kThreadsX;
      if (thread >= half && thread < 2 * half) upper[thread - half] = value;
      __syncthreads();
      if (thread < half) value = combine_each<Op>(value, upper[thread]);
      __syncthreads();
    }
  }
  return value;
}

}  // namespace fusec
