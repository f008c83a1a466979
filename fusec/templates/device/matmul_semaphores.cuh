// What a split-K product needs of others (sm_90). Of its cluster: reads of a peer's shared memory. Of
// the clusters that take turns at its tile: the sum so far, in a work buffer.
// Sums travel in the order in which the threads own them: quad f of a thread is four neighbours of
// a row (matmul_share.cuh). `Config` is the struct at the top of the kernel.
#pragma once

#include "bulk_reduce.cuh"
#include "cluster.cuh"
#include "grid.cuh"
#include "matmul_share.cuh"
#include "named_barrier.cuh"
#include "partial_quads.cuh"

namespace fusec {

// Adds sums in shared memory to those in a work buffer; complete after commit_group and
// wait_group<0>. Sums of a 16-bit type are rounded to it by every addition.
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

// A multiplying thread: the sum of this CTA's share of the tile over all ranks, in their order.
template <class Config>
__device__ __forceinline__ void sum_over_cluster(float4 (&share)[Config::kOwned],
                                                 const float* tile, int rank) {
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

// A multiplying thread whose CTA is a cluster by itself: what it owns of the tile.
template <class Config>
__device__ __forceinline__ void read_tile(float4 (&share)[Config::kOwned], const float* tile) {
#pragma unroll
  for (int f = 0; f < Config::kOwned; ++f) {
    const Quad quad = quad_of<Config>(f, 0);
    share[f] = *reinterpret_cast<const float4*>(tile + quad.row * Config::kSumsPitch + quad.column);
  }
}

// All multiplying threads, not in the last turn: the share goes through `owned`, shared memory that
// nobody else reads any more, to the work buffer by one bulk copy, and is added to what lies there
// by all but the first. The turn is passed on only when the write is complete.
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

// All multiplying threads, in the last turn: add the sum of the others in f32, and leave the
// semaphore at zero for the next launch.
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

// As semaphore_release, by ordinary loads and stores: the sum so far passes through the threads.
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
