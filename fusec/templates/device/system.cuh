// Acquire loads and release stores at system scope, for flags between the GPUs of one host.
#pragma once

#include "types.cuh"

namespace fusec {

__device__ __forceinline__ u32 load_acquire_system(const u32* flag) {
  u32 value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

__device__ __forceinline__ u64 load_acquire_system(const u64* flag) {
  u64 value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
  return value;
}

__device__ __forceinline__ void store_release_system(u32* flag, u32 value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(flag), "r"(value) : "memory");
}

__device__ __forceinline__ void store_release_system(u64* flag, u64 value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(flag), "l"(value) : "memory");
}

}  // namespace fusec
