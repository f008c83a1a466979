// Indices that are data, checked before they address memory.
#pragma once

#include "storage.cuh"

namespace fusec {

// Returns an index from 0 to extent - 1 as it is. Another one is replaced by 0, and the first of
// them of a run is noted: errors[0] becomes the number of the check, errors[1] the index.
template <class T>
__device__ __forceinline__ T check_index(T index, i64 extent, u64 number, u64* errors) {
  if (static_cast<u64>(index) < static_cast<u64>(extent)) return index;
  if (atomicCAS(errors, 0ull, number) == 0) errors[1] = static_cast<u64>(index);
  return T(0);
}

}  // namespace fusec
