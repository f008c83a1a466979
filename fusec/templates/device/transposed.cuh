// A tile of lines by columns in shared memory, filled by vectors along its lines and read by
// vectors along its columns, without bank conflicts where both are 16 bytes. It begins at a
// multiple of 16 bytes; threads wait for one another between the two.
//
// The columns of a line lie in units of 16 bytes, or of a vector where that is longer. Of the lines
// of the vector number n, unit u lies at u ^ (n mod 8): eight threads that put words at the same
// column of eight vectors reach eight units, and so do eight threads that get the units of a line.
#pragma once

#include "vector.cuh"

namespace fusec {

// Where an element lies; the lines of a vector differ by the pitch alone.
template <class T, int kColumns, int kReadVec, int kWriteVec>
__device__ __forceinline__ int transposed_offset(int line, int column) {
  constexpr int kWide = 16 / static_cast<int>(sizeof(T));
  constexpr int kUnit = kWriteVec > kWide ? kWriteVec : kWide;
  constexpr int kMask = (kColumns / kUnit < 8 ? kColumns / kUnit : 8) - 1;
  const int unit = column / kUnit ^ (line / kReadVec & kMask);
  return line * kColumns + unit * kUnit + column % kUnit;
}

// Keeps vectors of neighbouring columns from a place on, the elements of a line as one word.
template <int kColumns, class T, int kReadVec, int kPack>
__device__ __forceinline__ void store_transposed(T* target,
                                                 const Vec<T, kReadVec> (&lines)[kPack]) {
#pragma unroll
  for (int v = 0; v < kReadVec; ++v) {
    Vec<T, kPack> word;
#pragma unroll
    for (int c = 0; c < kPack; ++c) word[c] = lines[c][v];
    store(target + v * kColumns, word);
  }
}

}  // namespace fusec
