// cp.reduce.async.bulk (sm_90): adds contiguous shared memory to global memory, in the memory
// system. Each rule prevents a race:
//   1. Both addresses and the size are multiples of 16 bytes.
//   2. All writers of the tile execute fence_proxy_async_shared_cta, then the block's barrier; then
//      one elected thread issues. A barrier alone does not order the two proxies.
//   3. A thread that acquired a turn executes fence_proxy_async before it issues.
//   4. commit_group and wait_group_read only free the shared memory. Before a turn is released or
//      the result announced: wait_group<0>, then a release at gpu scope.
//   5. A reader of the sum first acquires the flag, and executes fence_proxy_async before a bulk
//      load.
//   6. Floating-point sums depend on the order of adds: bitwise reproducible sums use tickets.
// Sums belong in a float buffer; fp16 and bf16 buffers accumulate in 16 bits, on request only.
#pragma once

#include "tma.cuh"

namespace fusec {

#define FUSEC_BULK_REDUCE(NAME, TYPE, OPERATION)                                      \
  __device__ __forceinline__ void NAME(TYPE* global, const TYPE* shared, u32 bytes) { \
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group." OPERATION      \
                 " [%0], [%1], %2;"                                                   \
                 :                                                                    \
                 : "l"(global), "r"(shared_address(shared)), "r"(bytes)               \
                 : "memory");                                                         \
  }

FUSEC_BULK_REDUCE(bulk_reduce_add, float, "add.f32")
FUSEC_BULK_REDUCE(bulk_reduce_add, double, "add.f64")
FUSEC_BULK_REDUCE(bulk_reduce_add, f16, "add.noftz.f16")
FUSEC_BULK_REDUCE(bulk_reduce_add, bf16, "add.noftz.bf16")
FUSEC_BULK_REDUCE(bulk_reduce_add, i32, "add.s32")
FUSEC_BULK_REDUCE(bulk_reduce_add, u32, "add.u32")
FUSEC_BULK_REDUCE(bulk_reduce_add, i64, "add.u64")
FUSEC_BULK_REDUCE(bulk_reduce_add, u64, "add.u64")
FUSEC_BULK_REDUCE(bulk_reduce_max, f16, "max.f16")
FUSEC_BULK_REDUCE(bulk_reduce_max, bf16, "max.bf16")
FUSEC_BULK_REDUCE(bulk_reduce_max, i32, "max.s32")
FUSEC_BULK_REDUCE(bulk_reduce_max, u32, "max.u32")
FUSEC_BULK_REDUCE(bulk_reduce_max, i64, "max.s64")
FUSEC_BULK_REDUCE(bulk_reduce_max, u64, "max.u64")
FUSEC_BULK_REDUCE(bulk_reduce_min, f16, "min.f16")
FUSEC_BULK_REDUCE(bulk_reduce_min, bf16, "min.bf16")
FUSEC_BULK_REDUCE(bulk_reduce_min, i32, "min.s32")
FUSEC_BULK_REDUCE(bulk_reduce_min, i64, "min.s64")

#undef FUSEC_BULK_REDUCE

// Adds a tile through a tensor map, which defines the element type. Out-of-bounds elements are
// skipped.
__device__ __forceinline__ void tensor_reduce_add_2d(const TensorMap* map, const void* shared,
                                                     i32 x, i32 y) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3}], [%1];"
      :
      : "l"(map), "r"(shared_address(shared)), "r"(x), "r"(y)
      : "memory");
}

__device__ __forceinline__ void tensor_reduce_add_3d(const TensorMap* map, const void* shared,
                                                     i32 x, i32 y, i32 z) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group"
      " [%0, {%2, %3, %4}], [%1];"
      :
      : "l"(map), "r"(shared_address(shared)), "r"(x), "r"(y), "r"(z)
      : "memory");
}

}  // namespace fusec
