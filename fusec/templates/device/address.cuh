// Addresses of shared memory as PTX instructions take them: 32 bits, in the shared window.
#pragma once

#include "storage.cuh"

namespace fusec {

__device__ __forceinline__ u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

}  // namespace fusec
