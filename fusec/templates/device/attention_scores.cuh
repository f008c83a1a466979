// Scores of 16 queries in the layout of a warp's accumulators, and weights in the layout of an A
// operand. With group = lane / 4 and pair = lane % 4, a lane has columns 8 * j + 2 * pair and the
// next one: s[4 * j] and s[4 * j + 1] are those of query `group`, s[4 * j + 2] and s[4 * j + 3]
// those of query group + 8.
#pragma once

#include "mma.cuh"
#include "types.cuh"
#include "vector.cuh"

namespace fusec {

// Returns the result of a GEMM rounded to T; a bf16 is the upper half of a float.
template <class T>
__device__ __forceinline__ float rounded_sum(float sum) {
  if constexpr (kIsSame<T, bf16>) {
    return __uint_as_float(pack_pair<T>(0.0f, sum));
  } else {
    return to_float(convert<T>(sum));
  }
}

// Clamps an offset to 2^30 in magnitude, which exceeds any distance between a query and a key.
__device__ __forceinline__ int offset_of(i64 offset) {
  constexpr i64 kMost = 1 << 30;
  return static_cast<int>(offset < -kMost ? -kMost : offset > kMost ? kMost : offset);
}

// Converts an integer below 2^22 in magnitude without I2F, whose unit also computes exponentials.
__device__ __forceinline__ float small_to_float(int x) {
  return __int_as_float(x + 0x4B400000) - 12582912.0f;
}

// Calls visit(row, column, values) for a warp's scores of 16 queries, kWidth neighbours at a time;
// it may change them.
template <int kWidth, int kCount, class Visit>
__device__ __forceinline__ void visit_scores(float (&s)[kCount], const Visit& visit) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kCount; i += kWidth) {
    Vec<float, kWidth> values;
#pragma unroll
    for (int e = 0; e < kWidth; ++e) values[e] = s[i + e];
    visit(lane / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2, values);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) s[i + e] = values[e];
  }
}

// Rounds weights and packs them as A operands of mma_16816 and wgmma, of two blocks of eight
// columns each.
template <class T, int kCount>
__device__ __forceinline__ void pack_weights(u32 (&weights)[kCount / 8][4],
                                             const float (&s)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    weights[i / 4][i % 4] = pack_pair<T>(s[2 * i], s[2 * i + 1]);
  }
}

}  // namespace fusec
