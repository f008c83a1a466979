// Thread block clusters (sm_90): rank, barrier, and loads from and stores to a peer's shared
// memory. That memory may be accessed between two calls of cluster_sync: one after every block has
// started, one before any of them exits.
#pragma once

#include "mbarrier.cuh"
#include "vector.cuh"

namespace fusec {

__device__ __forceinline__ u32 cluster_rank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Called by all threads of all blocks of the cluster. Writes before it are visible to all of them
// after it.
__device__ __forceinline__ void cluster_sync() {
  __syncwarp();
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;"
      :
      :
      : "memory");
}

// Returns the address in block `rank` that corresponds to `pointer` in this block.
__device__ __forceinline__ u32 cluster_address(const void* pointer, u32 rank) {
  u32 address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(address)
      : "r"(shared_address(pointer)), "r"(rank));
  return address;
}

__device__ __forceinline__ u32 cluster_load(const u32* pointer, u32 rank) {
  u32 value;
  asm volatile("ld.shared::cluster.u32 %0, [%1];"
               : "=r"(value)
               : "r"(cluster_address(pointer, rank))
               : "memory");
  return value;
}

__device__ __forceinline__ float4 cluster_load(const float4* pointer, u32 rank) {
  float4 value;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(cluster_address(pointer, rank))
               : "memory");
  return value;
}

// Sends words to the location of `to` in block `rank`. They have arrived when the current phase of
// the barrier at the location of `arrived` there completes; it must expect four bytes per word.
template <int kWords>
__device__ __forceinline__ void cluster_send(Vec<u32, kWords>* to, const Vec<u32, kWords>& words,
                                             Barrier* arrived, u32 rank) {
  const u32 address = cluster_address(to, rank);
  const u32 barrier = cluster_address(arrived, rank);
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
                 :
                 : "r"(address + 4 * i), "r"(words[i]), "r"(barrier)
                 : "memory");
  }
}

}  // namespace fusec
