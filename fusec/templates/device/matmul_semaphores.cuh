// Sums over the CTAs of a split-K GEMM (sm_90): within a cluster by reads of distributed shared
// memory, and across the clusters of a tile serially in ticket order, through a workspace in global
// memory. Partial sums travel in the order in which threads own them: quad f of a thread is
// four neighbours of a row (matmul_share.cuh). `Config` is the struct at the top of the kernel.
#pragma once

#include "bulk_reduce.cuh"
#include "cluster.cuh"
#include "grid.cuh"
#include "matmul_share.cuh"
#include "named_barrier.cuh"
#include "partial_quads.cuh"

namespace fusec {

// Adds partial sums in shared memory to those in the workspace; complete after commit_group and
// wait_group<0>. Each addition rounds to the workspace type.
__device__ __forceinline__ void add_sums(float4* work, const float4* sums, u32 bytes) {
  bulk_reduce_add(&work->x, &sums->x, bytes);
}
template <class T>
__device__ __forceinline__ void add_sums(Vec<T, 4>* work, const Vec<T, 4>* sums, u32 bytes) {
  bulk_reduce_add(work->data, sums->data, bytes);
}

__device__ __forceinline__ float4 add(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// Multiplying thread: the sum of its share of the tile over all CTAs of the cluster, in rank order.
template <class Config>
__device__ __forceinline__ void sum_over_cluster(float4 (&share)[Config::kOwned], const float* tile,
                                                 int rank) {
#pragma unroll
  for (int f = 0; f < Config::kOwned; ++f) {
    const Quad quad = quad_of<Config>(f, rank);
    const float* const own = tile + quad.row * Config::kSumsPitch + quad.column;
    share[f] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int peer = 0; peer < Config::kCluster; ++peer) {
      share[f] = add(share[f], cluster_load(reinterpret_cast<const float4*>(own), peer));
    }
  }
}

// Multiplying thread of a cluster of one CTA: its share of the tile.
template <class Config>
__device__ __forceinline__ void read_tile(float4 (&share)[Config::kOwned], const float* tile) {
#pragma unroll
  for (int f = 0; f < Config::kOwned; ++f) {
    const Quad quad = quad_of<Config>(f, 0);
    share[f] = *reinterpret_cast<const float4*>(tile + quad.row * Config::kSumsPitch + quad.column);
  }
}

// All multiplying threads of a cluster that is not the last one: adds the share to the workspace
// with one bulk copy from `owned`, shared memory that is no longer read; the first cluster
// overwrites. The semaphore is only advanced once the write is complete.
template <class Config, class Part>
__device__ __forceinline__ void semaphore_release(Part* slab, Part* owned, u32* semaphore, int turn,
                                                  const float4 (&share)[Config::kOwned]) {
  constexpr u32 kBytes = Config::kSlab * sizeof(Part);
#pragma unroll
  for (int f = 0; f < Config::kOwned; ++f) {
    store_quad(&owned[f * Config::kMultipliers + threadIdx.x], share[f]);
  }
  fence_proxy_async_shared_cta();
  named_barrier_sync<Config::kMultipliers>(1);
  if (threadIdx.x == 0) {
    if (turn == 0) {
      bulk_store(slab, owned, kBytes);
    } else {
      spin_until(semaphore, turn);
      fence_proxy_async();
      add_sums(slab, owned, kBytes);
    }
    commit_group();
    wait_group<0>();
    store_release(semaphore, turn + 1);
  }
}

// All multiplying threads of the last cluster: adds the sum of the other clusters in fp32 and
// resets the semaphore for the next launch.
template <class Config, class Part>
__device__ __forceinline__ void semaphore_wait(float4 (&share)[Config::kOwned], const Part* slab,
                                               u32* semaphore, int turn) {
  if (turn == 0) return;
  if (threadIdx.x == 0) {
    spin_until(semaphore, turn);
    *semaphore = 0;
  }
  named_barrier_sync<Config::kMultipliers>(1);
#pragma unroll
  for (int f = 0; f < Config::kOwned; ++f) {
    const auto sum = fetch_quad(&slab[f * Config::kMultipliers + threadIdx.x]);
    share[f] = add(widened(sum), share[f]);
  }
}

// As semaphore_release, with ordinary loads and stores: the running sum passes through registers.
template <class Config>
__device__ __forceinline__ void semaphore_release_stores(float4* slab, u32* semaphore, int turn,
                                                         float4 (&share)[Config::kOwned]) {
  if (turn != 0) {
    if (threadIdx.x == 0) spin_until(semaphore, turn);
    named_barrier_sync<Config::kMultipliers>(1);
#pragma unroll
    for (int f = 0; f < Config::kOwned; ++f) {
      share[f] = add(__ldcg(&slab[f * Config::kMultipliers + threadIdx.x]), share[f]);
    }
  }
#pragma unroll
  for (int f = 0; f < Config::kOwned; ++f) slab[f * Config::kMultipliers + threadIdx.x] = share[f];
  named_barrier_sync<Config::kMultipliers>(1);
  if (threadIdx.x == 0) store_release(semaphore, turn + 1);
}

}  // namespace fusec
