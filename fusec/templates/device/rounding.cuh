// round_to<T>(v): v after a round trip through the storage type T. Used where a 16-bit float is
// defined in a register: results never depend on whether a value went through memory.
#pragma once

#include "types.cuh"

namespace fusec {

template <class T, class V>
__device__ __forceinline__ float round_to(V value) {
  return to_float(convert<T>(value));
}

}  // namespace fusec
