// norm_dropout_residual_forward_inner_persistent: Layer norm of a residual sum after dropout, with
//   its backward pass.
// Source: examples/joint/norm_dropout_residual.yaml
//   14: keep = lt(uniform(0.0, 1.0, [B, H], dtype=f32), 0.9)
//   15: xd = where(keep, div(cast(x, f32), 0.9), 0.0)
//   16: s = add(xd, cast(r, f32))
//   17: var, mean = var_mean(s, dims=[1], correction=0, keepdim=true)
//   18: rstd = rsqrt(add(var, 1e-5))
//   19: xn = mul(sub(s, mean), rstd)
//   20: y = cast(add(mul(xn, cast(w, f32)), cast(b, f32)), bf16)
// Schedule: 128 threads per row, 1 rows per block, accesses of 8 elements; the row stays in
//   registers.
#include "combine.cuh"
#include "math.cuh"
#include "philox.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;         // elements per access
constexpr int kThreadsX = 128;  // threads per row
constexpr int kThreadsY = 1;    // rows per block
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kColumns = 4096;  // elements of a row
constexpr int kChunks = 4;      // vectors of a row per thread
static_assert(kChunks * kThreadsX * kVec == kColumns);

extern "C" __global__ void __launch_bounds__(kThreads)
    norm_dropout_residual_forward_inner_persistent(const fusec::bf16* __restrict__ x,
                                                   const fusec::bf16* __restrict__ r_,
                                                   const fusec::bf16* __restrict__ w,
                                                   const fusec::bf16* __restrict__ b,
                                                   const fusec::u64* __restrict__ rng_seed,
                                                   const fusec::u64* __restrict__ rng_offset,
                                                   float* __restrict__ mean,
                                                   float* __restrict__ rstd,
                                                   fusec::bf16* __restrict__ y) {
  const int row = blockIdx.x;
  fusec::Vec<float, kVec> s_kept[kChunks];

  const fusec::u64 rng_seed_value = rng_seed[0];
  const fusec::u64 rng_offset_value = rng_offset[0];
  float var_reduced_sum_part = fusec::Sum<float>::identity();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    const auto uniform_1_words = fusec::drawn_words<kVec>(
        rng_seed_value, rng_offset_value, fusec::convert<fusec::u64>(row * kColumns + column));
    const auto x_vec = fusec::load_readonly<kVec>(x + row * kColumns + column);
    const auto r_vec = fusec::load_readonly<kVec>(r_ + row * kColumns + column);
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const bool keep = fusec::uniform_f32(0.0f, 1.0f, uniform_1_words, v) < 0.9f;
      const float xd = keep ? fusec::divide(fusec::to_float(x_vec[v]), 0.9f) : 0.0f;
      const float s_value = xd + fusec::to_float(r_vec[v]);
      var_reduced_sum_part += s_value;
      s_kept[c][v] = s_value;
    }
  }
  const float var_reduced_sum =
      fusec::block_reduce_rows<fusec::Sum<float>, kThreadsX, kThreadsY>(var_reduced_sum_part);

  const float mean_reduced = var_reduced_sum * (1.0f / kColumns);
  if (threadIdx.x == 0) {
    mean[row] = mean_reduced;
  }
  float var_reduced_m2_part = fusec::Sum<float>::identity();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float var_reduced_away = s_kept[c][v] - mean_reduced;
      var_reduced_m2_part += var_reduced_away * var_reduced_away;
    }
  }
  const float var_reduced_m2 =
      fusec::block_reduce_rows<fusec::Sum<float>, kThreadsX, kThreadsY>(var_reduced_m2_part);

  const float rstd_value = rsqrtf(var_reduced_m2 * (1.0f / kColumns) + 1e-5f);
  if (threadIdx.x == 0) {
    rstd[row] = rstd_value;
  }
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    const auto w_vec = fusec::load_readonly<kVec>(w + column);
    const auto b_vec = fusec::load_readonly<kVec>(b + column);
    fusec::Vec<fusec::bf16, kVec> y_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float mul_1 = (s_kept[c][v] - mean_reduced) * rstd_value * fusec::to_float(w_vec[v]);
      y_vec[v] = fusec::convert<fusec::bf16>(mul_1 + fusec::to_float(b_vec[v]));
    }
    fusec::store(y + row * kColumns + column, y_vec);
  }
}
