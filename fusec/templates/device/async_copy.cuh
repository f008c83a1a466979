// cp.async (sm_80): each thread copies from global to shared memory without staging in registers.
// Copies since the last copy_commit form a group; copy_wait<N> waits until at most N groups of this
// thread are pending, and a barrier after it makes the data visible to other threads.
#pragma once

#include "address.cuh"
#include "l2_policy.cuh"

namespace fusec {

// Copies 16 bytes, bypassing L1. Both addresses are 16-byte aligned.
__device__ __forceinline__ void copy_async_16(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(shared_address(shared)), "l"(global)
               : "memory");
}

// Copies 16 bytes, or writes zeros if `inside` is false; the global address is then not read.
__device__ __forceinline__ void copy_async_16(void* shared, const void* global, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(shared)), "l"(global), "r"(inside ? 16 : 0)
               : "memory");
}

// The same for rows that are read once, in order: L2 prefetches whole 128-byte lines.
__device__ __forceinline__ void copy_async_16_of_line(void* shared, const void* global,
                                                      bool inside) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(shared)), "l"(global), "r"(inside ? 16 : 0)
               : "memory");
}

// The same with a cache policy of l2_policy.cuh.
__device__ __forceinline__ void copy_async_16_of_line(void* shared, const void* global, bool inside,
                                                      u64 policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;"
               :
               : "r"(shared_address(shared)), "l"(global), "r"(inside ? 16 : 0), "l"(policy)
               : "memory");
}

// Copies 4 or 8 bytes through L1, or writes zeros if `inside` is false. Both addresses are aligned
// to kBytes.
template <int kBytes>
__device__ __forceinline__ void copy_async(void* shared, const void* global, bool inside) {
  static_assert(kBytes == 4 || kBytes == 8);
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
               :
               : "r"(shared_address(shared)), "l"(global), "n"(kBytes), "r"(inside ? kBytes : 0)
               : "memory");
}

__device__ __forceinline__ void copy_commit() {
  asm volatile("cp.async.commit_group;" : : : "memory");
}

template <int kPending>
__device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
}

}  // namespace fusec
