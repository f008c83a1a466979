// The steps of a TMA + wgmma matrix product on 16-bit operands, stages of 64 elements along K.
// An operand is K-major (contiguous along K) or not (contiguous along M or N). Its shared tile is
// 128-byte swizzled: K-major, one row of 64 elements of K per row of the tile; else blocks of 64
// rows of the tile, each 64 elements of K deep and 64 rows wide. Tiles begin at multiples of 1024
// bytes.
#pragma once

#include "storage.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

namespace fusec {

inline constexpr int kBlockBytes = 64 * 128;  // 64 rows of 64 elements

// One thread: load rows [position, position + kExtent) of an operand, 64 elements of K from `depth`
// on. Elements beyond the tensor arrive as zeros and count as bytes, so a ragged tile needs no
// other code.
template <int kExtent, bool kKMajor>
__device__ __forceinline__ void load_operand(unsigned char* tile, const TensorMap* map,
                                             Barrier* barrier, int position, int depth, int batch) {
  if constexpr (kKMajor) {
    tensor_load_3d(tile, map, depth, position, batch, barrier);
  } else {
#pragma unroll
    for (int block = 0; block < kExtent / 64; ++block) {
      tensor_load_3d(tile + block * kBlockBytes, map, position + 64 * block, depth, batch, barrier);
    }
  }
}

// The shared-memory descriptor of the 16 elements of K from 16 * step on. Along K a K-major tile
// advances inside its swizzled rows, any other tile by two atoms of eight rows.
template <bool kKMajor>
__device__ __forceinline__ u64 operand_descriptor(const unsigned char* tile, int step) {
  if constexpr (kKMajor) {
    return descriptor_k_major(tile) + step * kDescriptorStepK;
  } else {
    return descriptor_mn_major(tile, kBlockBytes) + step * kDescriptorStepMn;
  }
}

// One warpgroup: sums += A B for 64 rows of A, kTileN columns of B and the 64 elements of K of a
// stage. Asynchronous: between wgmma_fence and wgmma_commit.
template <class T, int kTileN, bool kAKMajor, bool kBKMajor>
__device__ __forceinline__ void multiply_stage(float (&sums)[kTileN / 2],
                                               const unsigned char* a_tile,
                                               const unsigned char* b_tile) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    wgmma<kTileN, T, !kAKMajor, !kBKMajor>(sums, operand_descriptor<kAKMajor>(a_tile, step),
                                           operand_descriptor<kBKMajor>(b_tile, step), 1);
  }
}

}  // namespace fusec
