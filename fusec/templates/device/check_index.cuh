// Bounds checks of indices that are data, before they address memory.
#pragma once

#include "storage.cuh"

namespace fusec {

// Returns `index` if it is in [0, extent), else 0. The first failure of a run is recorded:
// errors[0] is set to the number of the check, errors[1] to the index.
template <class T>
__device__ __forceinline__ T check_index(T index, i64 extent, u64 number, u64* errors) {
  if (static_cast<u64>(index) < static_cast<u64>(extent)) return index;
  if (atomicCAS(errors, 0ull, number) == 0) errors[1] = static_cast<u64>(index);
  return T(0);
}

}  // namespace fusec
