// layernorm_inner_persistent: Layer norm over the last axis.
// Source: layernorm.yaml
//   15: xf = cast(x, f32)
//   16: var, mean = var_mean(xf, dims=[1], correction=0, keepdim=true)
//   17: rstd = rsqrt(var + eps)               # operators and calls nest
//   18: xn = (xf - mean) * rstd
//   19: y = cast(xn * w + b, bf16)
// Schedule: 128 threads per row, 1 rows per block, accesses of 8 elements; the row stays in
//   registers.
#include "combine.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;         // elements per access
constexpr int kThreadsX = 128;  // threads per row
constexpr int kThreadsY = 1;    // rows per block
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kColumns = 8192;  // elements of a row
constexpr int kChunks = 8;      // vectors of a row per thread
static_assert(kChunks * kThreadsX * kVec == kColumns);

extern "C" __global__ void __launch_bounds__(kThreads)
    layernorm_inner_persistent(const fusec::bf16* __restrict__ x,
                               const fusec::bf16* __restrict__ w,
                               const fusec::bf16* __restrict__ b,
                               fusec::bf16* __restrict__ y,
                               float eps) {
  const int row = blockIdx.x;
  fusec::Vec<fusec::bf16, kVec> x_row[kChunks];

  // The row stays in registers between the phases.
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    x_row[c] = fusec::load_readonly<kVec>(x + row * kColumns + column);
  }
  float var_reduced_sum_part = fusec::Sum<float>::identity();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float xf = fusec::to_float(x_row[c][v]);
      var_reduced_sum_part += xf;
    }
  }
  const float var_reduced_sum =
      fusec::block_reduce_rows<fusec::Sum<float>, kThreadsX, kThreadsY>(var_reduced_sum_part);

  const float mean_reduced = var_reduced_sum * (1.0f / kColumns);
  float var_reduced_m2_part = fusec::Sum<float>::identity();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float xf = fusec::to_float(x_row[c][v]);
      const float var_reduced_away = xf - mean_reduced;
      var_reduced_m2_part += var_reduced_away * var_reduced_away;
    }
  }
  const float var_reduced_m2 =
      fusec::block_reduce_rows<fusec::Sum<float>, kThreadsX, kThreadsY>(var_reduced_m2_part);

  const float rstd = rsqrtf(var_reduced_m2 * (1.0f / kColumns) + eps);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    const auto w_vec = fusec::load_readonly<kVec>(w + column);
    const auto b_vec = fusec::load_readonly<kVec>(b + column);
    fusec::Vec<fusec::bf16, kVec> y_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float xf = fusec::to_float(x_row[c][v]);
      const float add_2 =
          (xf - mean_reduced) * rstd * fusec::to_float(w_vec[v]) + fusec::to_float(b_vec[v]);
      y_vec[v] = fusec::convert<fusec::bf16>(add_2);
    }
    fusec::store(y + row * kColumns + column, y_vec);
  }
}
