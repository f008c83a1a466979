// Factors of an operand of a matrix product that vary along K.
#pragma once

#include "types.cuh"
#include "vector.cuh"

namespace fusec {

// The scales of an operand's rows (or columns) from `position` on, of `extent` in all: one for
// kRows of them and for 128 elements of K.
template <int kRows, class S, class Index>
struct BlockScales {
  const S* first;
  Index position;
  Index extent;
  Index stride;
  Index depth_stride;

  __device__ __forceinline__ float at(int row, int step) const {
    return to_float(value(row, step));
  }
  __device__ __forceinline__ S value(int row, int step) const {
    const Index wanted = position + row;
    const Index last = extent - 1;
    const Index place = (wanted < last ? wanted : last) / kRows * stride + step * depth_stride;
    return load_readonly(first + place)[0];
  }
};

// An operand without scales.
struct Unscaled {
  __device__ __forceinline__ float at(int, int) const { return 1.0f; }
};

}  // namespace fusec
