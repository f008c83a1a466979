// Rows of an operand that no memory holds: a kernel computes their elements where others are read.
#pragma once

#include "vector.cuh"

namespace fusec {

inline constexpr int kComputed = 8;  // neighbouring elements that are computed at a time

// make(m, k): the elements of row m from column k on; position: of the tile's first row; extent: of
// all rows.
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

// Eight halves as the words that tensor cores take.
template <class T>
__device__ __forceinline__ Vec<u32, 4> words_of(const Vec<T, kComputed>& made) {
  Vec<u32, 4> words;
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = reinterpret_cast<const u32*>(&made)[i];
  return words;
}

}  // namespace fusec
