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
    return load_readonly(place(row, step))[0];
  }
  __device__ __forceinline__ const S* place(int row, int step) const {
    const Index wanted = position + row;
    const Index last = extent - 1;
    return first + ((wanted < last ? wanted : last) / kRows * stride + step * depth_stride);
  }
};

// Has what lies at a place in memory brought to L1, and waits for nothing.
__device__ __forceinline__ void prefetch_place(const void* place) {
  asm volatile("prefetch.global.L1 [%0];" : : "l"(place));
}

// All threads that multiply, kThreads of them: have the scales of a tile's kTileRows rows, of steps
// `first` to before `last`, on their way. Each would be asked for one stage before it is needed, and
// memory takes longer than the products of a stage.
template <int kTileRows, int kThreads, int kRows, class S, class Index>
__device__ __forceinline__ void prefetch_scales(const BlockScales<kRows, S, Index>& scales,
                                                int first, int last) {
  constexpr int kSector = 32;  // bytes that memory gives at once
  const int each = scales.depth_stride == 1 ? kSector / static_cast<int>(sizeof(S)) : 1;
  for (int row = threadIdx.x; row < (kTileRows + kRows - 1) / kRows; row += kThreads) {
    for (int step = first; step < last; step += each) {
      prefetch_place(scales.place(row * kRows, step));
    }
  }
}

// An operand without scales.
struct Unscaled {
  __device__ __forceinline__ float at(int, int) const { return 1.0f; }
};

}  // namespace fusec
