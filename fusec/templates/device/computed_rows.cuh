// Rows of an operand that is not in memory: the kernel computes its elements instead of loading
// them.
#pragma once

#include "vector.cuh"

namespace fusec {

inline constexpr int kComputed = 8;  // neighbouring elements that are computed at a time

// make(m, k) returns the elements of row m from column k on. position: the first row of the tile;
// extent: the number of rows of the operand.
template <class Make, class Index>
struct ComputedRows {
  Make make;
  Index position;
  Index extent;
};

template <class Make, class Index>
__device__ __forceinline__ ComputedRows<Make, Index> computed_rows(const Make& make, Index position,
                                                                   Index extent) {
  return {make, position, extent};
}

// Packs eight 16-bit floats into words, as tensor cores take them.
template <class T>
__device__ __forceinline__ Vec<u32, 4> words_of(const Vec<T, kComputed>& made) {
  Vec<u32, 4> words;
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = reinterpret_cast<const u32*>(&made)[i];
  return words;
}

}  // namespace fusec
