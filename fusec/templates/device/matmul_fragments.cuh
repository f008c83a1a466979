// The sums of a tensor-core product, given out as neighbours of one row. They lie in blocks of 16
// rows and 8 columns: a lane holds two neighbouring columns of two rows, eight apart, enough for an
// access of 4 bytes of a half type. For wider ones the four lanes of a quad exchange columns, after
// which each has all eight of one block in four.
#pragma once

#include "shuffle.cuh"
#include "vector.cuh"

namespace fusec {

// v[2 f + e] is column 2 q + e of block f in lane q of a quad; after it, v[i] is column i of block
// q. A transpose of a 4 x 4 matrix of pairs: first within 2 x 2 pieces, then between them. All
// lanes of the warp call it.
__device__ __forceinline__ void transpose_quad(float (&v)[8], int q) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = (q & bit) != 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if ((i / 2 & bit) != 0) continue;
      float& low = v[i];
      float& high = v[i + 2 * bit];
      const float received = shuffle_xor(upper ? low : high, bit);
      if (upper) {
        low = received;
      } else {
        high = received;
      }
    }
  }
}

// One warp: visit(row, column, acc) for all sums of kBlocks neighbouring blocks, kWidth
// neighbouring columns at a time; at(block, i) is number i of the four sums that this lane holds of
// a block.
template <int kWidth, int kBlocks, class At, class Visit>
__device__ __forceinline__ void visit_blocks(const At& at, const Visit& visit) {
  const int lane = threadIdx.x % 32;
  if constexpr (kWidth == 8) {
    static_assert(kBlocks % 4 == 0);
#pragma unroll
    for (int block = 0; block < kBlocks; block += 4) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Vec<float, 8> acc;
#pragma unroll
        for (int e = 0; e < 8; ++e) acc[e] = at(block + e / 2, 2 * half + e % 2);
        transpose_quad(acc.data, lane % 4);
        visit(lane / 4 + 8 * half, 8 * block + lane % 4 * 8, acc);
      }
    }
  } else {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int i = 0; i < 4; i += kWidth) {
        Vec<float, kWidth> acc;
#pragma unroll
        for (int e = 0; e < kWidth; ++e) acc[e] = at(block, i + e);
        visit(lane / 4 + i / 2 * 8, 8 * block + lane % 4 * 2 + i % 2, acc);
      }
    }
  }
}

}  // namespace fusec
