// round_to<T>(v): the value that v has after a round trip through the storage type T. Used where a
// half value is defined in a register: results never depend on whether a value visited memory.
#pragma once

#include "types.cuh"

namespace fusec {

template <class T, class V>
__device__ __forceinline__ float round_to(V value) {
  return to_float(convert<T>(value));
}

}  // namespace fusec
