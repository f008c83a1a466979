// The softmax of rows whose scores come a tile of columns at a time, as wgmma leaves them: a thread
// holds two rows, of each two neighbours in every block of eight columns; the four lanes of a quad
// have the rows together. The maxima and sums so far are kept; when a maximum grows, what was
// summed is to be multiplied by a factor: Milakov and Gimelshein, "Online normalizer calculation
// for softmax", 2018. Until a score above minus infinity comes, the sum is 0.
#pragma once

#include "combine.cuh"
#include "fast_math.cuh"
#include "shuffle.cuh"

namespace fusec {

struct SoftmaxRows {
  float top[2] = {-INFINITY, -INFINITY};
  float total[2] = {};  // of this thread's own columns

  // All lanes of a warp: scores become their exponentials less the maxima; factor[h] is what row
  // h's sums of before are to be multiplied by. s[i] is of row i / 2 % 2.
  template <int kCount>
  __device__ __forceinline__ void push(float (&s)[kCount], float (&factor)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = s[2 * h];
#pragma unroll
      for (int i = 0; i < kCount; i += 4) {
        most = max_keeping_nan(most, max_keeping_nan(s[i + 2 * h], s[i + 2 * h + 1]));
      }
      most = max_keeping_nan(most, shuffle_xor(most, 1));
      most = max_keeping_nan(most, shuffle_xor(most, 2));
      most = max_keeping_nan(most, top[h]);
      // Less minus infinity, minus infinity would be NaN.
      const float shift = most == -INFINITY ? 0.0f : most * kLog2E;
      factor[h] = exp2_approx(fmaf(top[h], kLog2E, -shift));
      top[h] = most;
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < kCount; i += 4) {
        float& left = s[i + 2 * h];
        float& right = s[i + 2 * h + 1];
        left = exp2_approx(fmaf(left, kLog2E, -shift));
        right = exp2_approx(fmaf(right, kLog2E, -shift));
        sum += left + right;
      }
      total[h] = fmaf(total[h], factor[h], sum);
    }
  }

  // All lanes of a warp: the sums of whole rows.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      total[h] += shuffle_xor(total[h], 1);
      total[h] += shuffle_xor(total[h], 2);
    }
  }
};

}  // namespace fusec
