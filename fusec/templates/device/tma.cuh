// TMA and other bulk copies (sm_90). One thread issues each copy. Loads complete on a Barrier that
// expects their bytes (arrive_expect_tx); stores complete in bulk groups (proxy.cuh). Shared
// addresses of tensor copies are aligned to 128 bytes (1024 for the 128-byte swizzle); plain bulk
// copies need 16 for both addresses and the size. Coordinates count elements, innermost first. A
// TensorMap is a `const __grid_constant__ TensorMap` parameter, encoded by the host.
#pragma once

#include "l2_policy.cuh"
#include "mbarrier.cuh"
#include "proxy.cuh"

namespace fusec {

struct alignas(128) TensorMap {
  u64 opaque[16];
};

__device__ __forceinline__ void prefetch_tensormap(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" : : "l"(map) : "memory");
}

__device__ __forceinline__ void bulk_load(void* shared, const void* global, u32 bytes,
                                          Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :
      : "r"(shared_address(shared)), "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

__device__ __forceinline__ void bulk_load(void* shared, const void* global, u32 bytes,
                                          Barrier* barrier, u64 policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1], %2, [%3], %4;"
      :
      : "r"(shared_address(shared)), "l"(global), "r"(bytes), "r"(shared_address(barrier)),
        "l"(policy)
      : "memory");
}

__device__ __forceinline__ void bulk_store(void* global, const void* shared, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               :
               : "l"(global), "r"(shared_address(shared)), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void tensor_load_2d(void* shared, const TensorMap* map, i32 x, i32 y,
                                               Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];"
      :
      : "r"(shared_address(shared)), "l"(map), "r"(x), "r"(y), "r"(shared_address(barrier))
      : "memory");
}

__device__ __forceinline__ void tensor_load_2d(void* shared, const TensorMap* map, i32 x, i32 y,
                                               Barrier* barrier, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;"
      :
      : "r"(shared_address(shared)), "l"(map), "r"(x), "r"(y), "r"(shared_address(barrier)),
        "l"(policy)
      : "memory");
}

// Loads the same tile into every block of the cluster whose bit is set in `blocks`, each with its
// own barrier.
__device__ __forceinline__ void tensor_load_2d_multicast(void* shared, const TensorMap* map, i32 x,
                                                         i32 y, Barrier* barrier, u16 blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
      :
      : "r"(shared_address(shared)), "l"(map), "r"(x), "r"(y), "r"(shared_address(barrier)),
        "h"(blocks)
      : "memory");
}

__device__ __forceinline__ void tensor_load_3d(void* shared, const TensorMap* map, i32 x, i32 y,
                                               i32 z, Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4}], [%5];"
      :
      : "r"(shared_address(shared)), "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
      : "memory");
}

__device__ __forceinline__ void tensor_load_3d(void* shared, const TensorMap* map, i32 x, i32 y,
                                               i32 z, Barrier* barrier, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;"
      :
      : "r"(shared_address(shared)), "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier)),
        "l"(policy)
      : "memory");
}

__device__ __forceinline__ void tensor_load_3d_multicast(void* shared, const TensorMap* map, i32 x,
                                                         i32 y, i32 z, Barrier* barrier,
                                                         u16 blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;"
      :
      : "r"(shared_address(shared)), "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier)),
        "h"(blocks)
      : "memory");
}

__device__ __forceinline__ void tensor_load_3d_multicast(void* shared, const TensorMap* map, i32 x,
                                                         i32 y, i32 z, Barrier* barrier, u16 blocks,
                                                         u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6, %7;"
      :
      : "r"(shared_address(shared)), "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier)),
        "h"(blocks), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void tensor_store_2d(const TensorMap* map, const void* shared, i32 x,
                                                i32 y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];"
               :
               : "l"(map), "r"(shared_address(shared)), "r"(x), "r"(y)
               : "memory");
}

__device__ __forceinline__ void tensor_store_3d(const TensorMap* map, const void* shared, i32 x,
                                                i32 y, i32 z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];"
      :
      : "l"(map), "r"(shared_address(shared)), "r"(x), "r"(y), "r"(z)
      : "memory");
}

}  // namespace fusec
