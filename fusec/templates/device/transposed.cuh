// A tile of lines by columns in shared memory, filled by vectors along its lines and read by
// vectors along its columns, without bank conflicts if both are 16 bytes. It is aligned to 16
// bytes; a barrier separates filling and reading.
//
// The columns of a line are in units of 16 bytes, or of a vector if that is longer. In the lines of
// vector n, unit u is at u ^ (n mod 8): eight threads that store words to the same column of eight
// vectors access eight units, and so do eight threads that load the units of a line.
#pragma once

#include "vector.cuh"

namespace fusec {

// Returns the offset of an element; the lines of a vector differ by the pitch alone.
template <class T, int kColumns, int kReadVec, int kWriteVec>
__device__ __forceinline__ int transposed_offset(int line, int column) {
  constexpr int kWide = 16 / static_cast<int>(sizeof(T));
  constexpr int kUnit = kWriteVec > kWide ? kWriteVec : kWide;
  constexpr int kMask = (kColumns / kUnit < 8 ? kColumns / kUnit : 8) - 1;
  const int unit = column / kUnit ^ (line / kReadVec & kMask);
  return line * kColumns + unit * kUnit + column % kUnit;
}

// Stores vectors of neighbouring columns from `target` on, the elements of a line as one word.
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
