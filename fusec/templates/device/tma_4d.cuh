// Tensor copies (tma.cuh) of four-dimensional tensors.
#pragma once

#include "tma.cuh"

namespace fusec {

__device__ __forceinline__ void tensor_load_4d(void* shared, const TensorMap* map, i32 x, i32 y,
                                               i32 z, i32 w, Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4, %5}], [%6];"
      :
      : "r"(shared_address(shared)), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w),
        "r"(shared_address(barrier))
      : "memory");
}

}  // namespace fusec
