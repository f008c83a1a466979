// Atomic updates of memory by many threads in the order of arrival, which integer sums do not
// depend on.
#pragma once

#include "storage.cuh"

namespace fusec {

template <class T>
__device__ __forceinline__ void atomic_add(T* target, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  if constexpr (kIsFloat<T>) {
    atomicAdd(target, value);
  } else if constexpr (sizeof(T) == 4) {
    atomicAdd(reinterpret_cast<u32*>(target), static_cast<u32>(value));
  } else {
    atomicAdd(reinterpret_cast<u64*>(target), static_cast<u64>(value));
  }
}

__device__ __forceinline__ void atomic_max(u32* target, u32 value) { atomicMax(target, value); }

// Several threads may store the same value to the same address.
__device__ __forceinline__ void store_relaxed(u32* target, u32 value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" : : "l"(target), "r"(value) : "memory");
}

}  // namespace fusec
