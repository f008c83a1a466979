// What a split-K product needs of its cluster: rank, barrier, and reads of a peer's shared memory
// (sm_90). A peer's shared memory is there between two cluster_sync: one after every block has
// started, one before any of them ends.
#pragma once

#include "bulk_reduce.cuh"

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

// The barrier `id` (1 to 15) of the first `kThreads` threads of a block.
template <int kThreads>
__device__ __forceinline__ void named_barrier_sync(int id) {
  asm volatile("bar.sync %0, %1;" : : "r"(id), "n"(kThreads) : "memory");
}

// Adds sums in shared memory to those in a work buffer; complete after commit_group and
// wait_group<0>.
__device__ __forceinline__ void add_sums(float4* work, const float4* sums, u32 bytes) {
  bulk_reduce_add(&work->x, &sums->x, bytes);
}

__device__ __forceinline__ float4 add(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

}  // namespace fusec
