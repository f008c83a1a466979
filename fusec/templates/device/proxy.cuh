// Order between the generic and the asynchronous proxy (bulk copies), and bulk groups (sm_90).
// Before a bulk store or reduction of a shared tile: every thread that wrote the tile executes
// fence_proxy_async_shared_cta, then the block's barrier, then one elected thread issues the copy.
#pragma once

#include "storage.cuh"

namespace fusec {

// For this block's shared memory. Cheaper than the unrestricted fence: use it where it suffices.
__device__ __forceinline__ void fence_proxy_async_shared_cta() {
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

// For all memory: after acquiring a flag and before a bulk copy that reads or writes the data that
// it guards.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async;" : : : "memory");
}

// For global memory only.
__device__ __forceinline__ void fence_proxy_async_global() {
  asm volatile("fence.proxy.async.global;" : : : "memory");
}

// Commits a group: this thread's bulk stores and reductions since the last one.
__device__ __forceinline__ void commit_group() {
  asm volatile("cp.async.bulk.commit_group;" : : : "memory");
}

// Waits until at most kPending groups are pending; the writes of the others are complete. Required
// before a ticket is released or the result is announced.
template <int kPending>
__device__ __forceinline__ void wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" : : "n"(kPending) : "memory");
}

// Waits only until the shared memory of those groups may be reused; their global writes may not be
// complete.
template <int kPending>
__device__ __forceinline__ void wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" : : "n"(kPending) : "memory");
}

// Returns true in one lane of a converged warp; the compiler treats the branch that it guards as
// uniform.
__device__ __forceinline__ bool elect_one() {
  u32 elected;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(elected));
  return elected != 0;
}

}  // namespace fusec
