// Copies a kRows x kColumns tile of a matrix into shared memory as 16-bit floats, zero-filled out
// of bounds. All threads of the CTA call it, then commit the cp.async group and synchronize before
// reading. The row pitch in shared memory is kPitch elements, a multiple of 16 bytes.
#pragma once

#include "async_copy.cuh"
#include "types.cuh"
#include "vector.cuh"

namespace fusec {

// Copies the first `bytes` of 16 bytes and zero-fills the rest.
__device__ __forceinline__ void copy_async_16_bytes(void* shared, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(shared)), "l"(global), "r"(bytes)
               : "memory");
}

// Copies chunks of kChunk elements, 16 bytes if no conversion is needed. `row`, `column`: the
// origin of the tile; `rows`, `columns`: the extents of the matrix. kAsync: the columns are
// contiguous and every row is 16-byte aligned. Elements of a different type than the tile's are
// converted, which disables cp.async.
template <int kRows, int kColumns, int kPitch, int kThreads, bool kAsync, int kChunk = 8, class T,
          class S, class Index>
__device__ __forceinline__ void matmul_fill(T* tile, const S* matrix, Index row, Index column,
                                            Index rows, Index columns, Index row_stride,
                                            Index column_stride) {
  constexpr int kChunks = kColumns / kChunk;
  static_assert(kRows * kChunks % kThreads == 0, "every thread copies the same number of chunks");
#pragma unroll
  for (int i = 0; i < kRows * kChunks / kThreads; ++i) {
    const int chunk = i * kThreads + threadIdx.x;
    const Index r = row + chunk / kChunks;
    const Index c = column + chunk % kChunks * kChunk;
    T* target = tile + chunk / kChunks * kPitch + chunk % kChunks * kChunk;
    const Index left = r < rows && c < columns ? columns - c : 0;
    const int valid = left < kChunk ? static_cast<int>(left) : kChunk;
    const S* source = matrix + (valid > 0 ? r * row_stride + c * column_stride : 0);
    if constexpr (kAsync && kIsSame<S, T>) {
      copy_async_16_bytes(target, source, valid * static_cast<int>(sizeof(T)));
    } else {
      Vec<S, kChunk> values = {};
      if (kAsync && valid == kChunk) {
        values = load_readonly<kChunk>(source);
      } else {
#pragma unroll
        for (int e = 0; e < kChunk; ++e) {
          if (e < valid) values[e] = source[e * column_stride];
        }
      }
      Vec<T, kChunk> converted;
#pragma unroll
      for (int e = 0; e < kChunk; ++e) converted[e] = convert<T>(values[e]);
      store(target, converted);
    }
  }
}

}  // namespace fusec
