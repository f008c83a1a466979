// Visits the accumulators of a tensor-core GEMM in groups of neighbouring columns. Accumulators
// come in blocks of 16 rows by 8 columns: a lane holds two neighbouring columns of rows r and r +
// 8, enough for 4-byte accesses of 16-bit types. For wider accesses the four lanes of a quad
// transpose four blocks, after which each lane holds all eight columns of one block.
#pragma once

#include "shuffle.cuh"
#include "vector.cuh"

namespace fusec {

// Transposes a 4 x 4 matrix of pairs across a quad: before, v[2 f + e] is column 2 q + e of block f
// in lane q; afterwards, v[i] is column i of block q. First within 2 x 2 submatrices, then between
// them. All lanes of the warp call it.
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

// Calls visit(row, column, acc) for all accumulators of kBlocks adjacent blocks, kWidth
// neighbouring columns at a time; at(block, i) is the i-th of this lane's four accumulators of a
// block. Called by one warp.
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
