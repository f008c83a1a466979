// batchnorm_s1_pointwise: Batch norm over N, H and W of an NCHW tensor, with the statistics of the batch.
// Source: examples/batchnorm.yaml
//   xf = cast(x, dtype=f32)
//   mean_c = broadcast(mean, is_broadcast_dim=[true, false, true, true])
//   sub_1 = sub(xf, mean_c)
//   add_1 = add(var, eps)
//   rstd = rsqrt(add_1)
//   rstd_c = broadcast(rstd, is_broadcast_dim=[true, false, true, true])
//   mul_1 = mul(sub_1, rstd_c)
//   w_c = broadcast(w, is_broadcast_dim=[true, false, true, true])
//   mul_2 = mul(mul_1, w_c)
//   b_c = broadcast(b, is_broadcast_dim=[true, false, true, true])
//   add_2 = add(mul_2, b_c)
//   y = cast(add_2, dtype=f16)
// Schedule: rows by vectors of columns, 1 x 256 threads (rows x vectors), 1 rows per thread, accesses of 8 elements.
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;  // elements per access
constexpr int kThreadsX = 256;  // vectors of a row side by side
constexpr int kThreadsY = 1;  // rows at a time
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kUnroll = 1;  // rows per thread

extern "C" __global__ void __launch_bounds__(kThreads) batchnorm_s1_pointwise(
    const fusec::f16* __restrict__ x,
    const float* __restrict__ w,
    const float* __restrict__ b,
    const float* __restrict__ mean,
    const float* __restrict__ var,
    float* __restrict__ rstd,
    fusec::f16* __restrict__ y,
    float eps,
    fusec::i64 N) {
  const int rows = N * 64;
  const int column = (blockIdx.y * kThreadsX + threadIdx.x) * kVec;
  if (column >= 3136) return;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int row = (blockIdx.x * kUnroll + u) * static_cast<int>(kThreadsY) + threadIdx.y;
    if (row >= rows) break;
    const int row_mod_64 = row % 64;
    const float var_value = var[row_mod_64];
    const float rstd_value = rsqrtf(var_value + eps);
    const int row_over_64 = row / 64;
    const float mean_value = mean[row_mod_64];
    const float w_value = w[row_mod_64];
    const float b_value = b[row_mod_64];
    const int part_over_7 = column / 8 / 7;
    const int part_mod_7 = column / 8 % 7;
    const auto x_vec = fusec::load_readonly<kVec>(x + row * 3136 + column);
    fusec::Vec<fusec::f16, kVec> y_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      if (row_over_64 < 1 && part_over_7 < 1 && part_mod_7 * 8 + v < 1) rstd[row_mod_64] = rstd_value;
      const float mul_2 = (fusec::to_float(x_vec[v]) - mean_value) * rstd_value * w_value;
      y_vec[v] = fusec::convert<fusec::f16>(mul_2 + b_value);
    }
    fusec::store(y + row * 3136 + column, y_vec);
  }
}
