// L2 cache hints of loads, and prefetches into L2 (sm_80).
#pragma once

#include "types.cuh"

namespace fusec {

// Policies for data that is read once, and for data that other blocks read again.
__device__ __forceinline__ u64 l2_evict_first() {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ u64 l2_evict_last() {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Prefetches the sector of an address into L2, without waiting. Called by one thread.
inline constexpr int kSectorBytes = 32;
__device__ __forceinline__ void prefetch_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" : : "l"(address));
}

}  // namespace fusec
