// Clusters of blocks (sm_90): rank, barrier, reads of a peer's shared memory and sends into it.
// That memory is there between two cluster_sync: one after every block has started, one before any
// of them ends.
#pragma once

#include "mbarrier.cuh"
#include "vector.cuh"

namespace fusec {

__device__ __forceinline__ u32 cluster_rank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// All threads of all blocks of the cluster; what each wrote before is seen by all after it.
__device__ __forceinline__ void cluster_sync() {
  __syncwarp();
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;"
      :
      :
      : "memory");
}

// Where `pointer` of the own block lies in block `rank`.
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

// Sends words to the address of `to` in block `rank`; they have arrived when the phase of the
// barrier at the address of `arrived` there is complete, which expects four bytes for each.
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
