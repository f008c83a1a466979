// Reductions over the rows of a block for kernels that reduce many times in a loop. Called by all
// threads of the block, which all get the result. `turn` starts at 0 and is passed from call to
// call: calls alternate between two buffers in shared memory, so each needs one barrier instead of
// the two of block_reduce_rows. The order of combination is fixed.
#pragma once

#include "reduce.cuh"

namespace fusec {

template <class Op, class T>
__device__ __forceinline__ T neutral(const T&) {
  return Op::identity();
}
template <class Op, class T, int N>
__device__ __forceinline__ Vec<T, N> neutral(const Vec<T, N>&) {
  return splat<T, N>(Op::identity());
}

// Reduces over threadIdx.x for each threadIdx.y of a kThreadsX x kThreadsY block. kThreadsX is a
// power of two up to 32, or a multiple of 32 up to 1024; the block has whole warps.
template <class Op, int kThreadsX, int kThreadsY, class T>
__device__ __forceinline__ T block_reduce_rows_in_turns(T value, int& turn) {
  static_assert(kThreadsX * kThreadsY % 32 == 0 && kThreadsX * kThreadsY <= 1024);
  if constexpr (kThreadsX <= 32) {
    return warp_reduce<Op, kThreadsX>(value);
  } else {
    static_assert(kThreadsX % 32 == 0);
    constexpr int kWarps = kThreadsX / 32;
    __shared__ T partials[2][kThreadsY][kWarps];
    T* own = partials[turn][kThreadsY == 1 ? 0 : threadIdx.y];
    turn ^= 1;
    value = warp_reduce<Op>(value);
    if (threadIdx.x % 32 == 0) own[threadIdx.x / 32] = value;
    __syncthreads();
    if constexpr (kWarps <= 4) {
      value = own[0];
#pragma unroll
      for (int warp = 1; warp < kWarps; ++warp) value = combine_each<Op>(value, own[warp]);
      return value;
    } else {
      constexpr int kWidth = kWarps <= 8 ? 8 : kWarps <= 16 ? 16 : 32;
      const int warp = threadIdx.x % kWidth;
      return warp_reduce<Op, kWidth>(warp < kWarps ? own[warp] : neutral<Op>(value));
    }
  }
}

}  // namespace fusec
