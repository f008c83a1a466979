// Named barriers for some warps of a block, with IDs from 1 to 15; 0 is __syncthreads.
#pragma once

#include "storage.cuh"

namespace fusec {

// Synchronizes kThreads threads of a block at barrier `id` (1 to 15). Called by whole warps.
template <int kThreads>
__device__ __forceinline__ void named_barrier_sync(int id) {
  asm volatile("bar.sync %0, %1;" : : "r"(id), "n"(kThreads) : "memory");
}

// Arrives at a barrier of kThreads threads without waiting. Called by whole warps.
template <int kThreads>
__device__ __forceinline__ void named_barrier_arrive(int id) {
  asm volatile("bar.arrive %0, %1;" : : "r"(id), "n"(kThreads) : "memory");
}

}  // namespace fusec
