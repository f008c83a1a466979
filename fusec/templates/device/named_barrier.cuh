// Barriers of some threads of a block, whole warps, by a number from 1 to 15; 0 is __syncthreads.
#pragma once

#include "storage.cuh"

namespace fusec {

// The barrier `id` (1 to 15) of the first `kThreads` threads of a block.
template <int kThreads>
__device__ __forceinline__ void named_barrier_sync(int id) {
  asm volatile("bar.sync %0, %1;" : : "r"(id), "n"(kThreads) : "memory");
}

// Arrives at a barrier of kThreads threads, for which others wait; whole warps call it.
template <int kThreads>
__device__ __forceinline__ void named_barrier_arrive(int id) {
  asm volatile("bar.arrive %0, %1;" : : "r"(id), "n"(kThreads) : "memory");
}

}  // namespace fusec
