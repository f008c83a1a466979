// Online softmax of rows whose scores are computed one tile of columns at a time, in the layout of
// wgmma's accumulators: a thread holds two rows, with two neighbours in every block of eight
// columns; the four lanes of a quad share their rows. The number that is subtracted from a row's
// scores before the exponential need not be the largest score: it grows only when scores exceed it
// by more than kSlack, and then previous sums must be multiplied by a factor (Milakov and
// Gimelshein, "Online normalizer calculation for softmax", 2018). Sums are 0 until a score above
// -inf arrives.
//
// If the largest score is far from 0, like that of keys that a mask fills with the lowest number,
// the rounding error of its product with the scale is large for an exponent. It is then subtracted
// from scores before these are scaled, and `shift` is -inf.
#pragma once

#include "combine.cuh"
#include "fast_math.cuh"
#include "shuffle.cuh"

namespace fusec {

struct SoftmaxRows {
  // A weight is at most 2^kSlack, which 16-bit floats and sums of them can hold.
  static constexpr float kSlack = 8.0f;
  // Scaled scores beyond this are far from 0; below, their rounding error is less than 2^-8.
  static constexpr float kFar = 65536.0f;
  float top[2] = {-INFINITY, -INFINITY};    // the largest scores so far, unscaled
  float shift[2] = {-INFINITY, -INFINITY};  // subtracted from scaled scores, unless these are far
  float total[2] = {};                      // of this thread's own columns
  float factor[2] = {1.0f, 1.0f};           // of the sums before the last push

  // Replaces scores by 2^(scale * score - shift), for a positive scale. s[i] is of row i / 2 % 2.
  // Returns whether factors of the warp may differ from 1. Called by all lanes of a warp.
  template <int kCount>
  __device__ __forceinline__ bool push(float (&s)[kCount], float scale) {
    float most[4] = {s[0], s[1], s[2], s[3]};
#pragma unroll
    for (int i = 4; i < kCount; ++i) most[i % 4] = max_keeping_nan(most[i % 4], s[i]);
    bool grown = false;
    float before[2];  // top before these scores
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float all = max_keeping_nan(most[2 * h], most[2 * h + 1]);
      all = max_keeping_nan(all, shuffle_xor(all, 1));
      all = max_keeping_nan(all, shuffle_xor(all, 2));
      before[h] = top[h];
      top[h] = max_keeping_nan(top[h], all);
      grown |= all * scale >= shift[h] + kSlack;  // always if the largest score is far from 0
    }
    grown = __ballot_sync(kFullWarp, grown) != 0;
    if (grown) {
      bool far[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float next = top[h] * scale;
        const bool was_far = shift[h] == -INFINITY && before[h] != -INFINITY;
        far[h] = top[h] != -INFINITY && fabsf(next) > kFar;
        // -inf - -inf would be NaN.
        const float power = was_far ? (before[h] - top[h]) * scale : shift[h] - next;
        factor[h] = !was_far && next == -INFINITY ? 1.0f : exp2_approx(power);
        shift[h] = far[h] ? -INFINITY : next;
        total[h] *= factor[h];
      }
      if (far[0] || far[1]) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) s[i] -= far[i / 2 % 2] ? top[i / 2 % 2] : 0.0f;
      }
    }
    const float less[2] = {shift[0] == -INFINITY ? 0.0f : -shift[0],
                           shift[1] == -INFINITY ? 0.0f : -shift[1]};
    float sums[4] = {};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      s[i] = exp2_approx(fmaf(s[i], scale, less[i / 2 % 2]));
      sums[i % 4] += s[i];
    }
    total[0] += sums[0] + sums[1];
    total[1] += sums[2] + sums[3];
    return grown;
  }

  // Computes the totals of whole rows, relative to the largest score; factors rescale sums to the
  // same. Called by all lanes of a warp.
  __device__ __forceinline__ void finish(float scale) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      total[h] += shuffle_xor(total[h], 1);
      total[h] += shuffle_xor(total[h], 2);
      factor[h] = shift[h] == -INFINITY ? 1.0f : exp2_approx(shift[h] - top[h] * scale);
      total[h] *= factor[h];
    }
  }
};

}  // namespace fusec
