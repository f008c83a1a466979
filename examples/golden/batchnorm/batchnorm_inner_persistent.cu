// batchnorm_inner_persistent: Batch norm over N, H and W of an NCHW tensor, with the statistics of the batch.
// Source: examples/batchnorm.yaml
//   xf = cast(x, dtype=f32)
//   var_sum = sum(xf, dims=[0, 2, 3], dtype=None)
//   mean = mul(var_sum, 9.964923469387754e-06)
//   var_center = broadcast(mean, is_broadcast_dim=[true, false, true, true])
//   var_away = sub(xf, var_center)
//   var_squares = mul(var_away, var_away)
//   var_m2 = sum(var_squares, dims=[0, 2, 3], dtype=None)
//   var = mul(var_m2, 9.964923469387754e-06)
//   mean_c = broadcast(mean, is_broadcast_dim=[true, false, true, true])
//   sub_1 = sub(xf, mean_c)
//   add_1 = add(var, eps)
//   rstd = rsqrt(add_1)
//   rstd_c = broadcast(rstd, is_broadcast_dim=[true, false, true, true])
//   mul_1 = mul(sub_1, rstd_c)
//   w_c = broadcast(w, is_broadcast_dim=[true, false, true, true])
//   mul_2 = mul(mul_1, w_c)
//   ... and 3 more operations
// Schedule: 512 threads per row, 1 rows per block, accesses of 8 elements; the row stays in shared memory.
#include "combine.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;  // elements per access
constexpr int kThreadsX = 512;  // threads per row
constexpr int kThreadsY = 1;  // rows per block
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kColumns = 100352;  // elements of a row

extern "C" __global__ void __launch_bounds__(kThreads) batchnorm_inner_persistent(
    const fusec::f16* __restrict__ x,
    const float* __restrict__ w,
    const float* __restrict__ b,
    float* __restrict__ mean,
    float* __restrict__ rstd,
    fusec::f16* __restrict__ y,
    float eps) {
  const int row = blockIdx.x;
  extern __shared__ __align__(16) char shared_memory[];
  auto* x_row = reinterpret_cast<fusec::Vec<fusec::f16, kVec>*>(shared_memory + 0);

  const float w_value = w[row];
  const float b_value = b[row];
  float var_sum_part = fusec::Sum<float>::identity();
  for (int column = threadIdx.x * kVec; column < kColumns; column += kThreadsX * kVec) {
    const int part_over_392 = column / 8 / 392;
    const int part_mod_392 = column / 8 % 392;
    x_row[column / kVec] = fusec::load_readonly<kVec>(x + part_over_392 * 200704 + row * 3136 + part_mod_392 * 8);
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float xf = fusec::to_float(x_row[column / kVec][v]);
      var_sum_part += xf;
    }
  }
  const float var_sum = fusec::block_reduce_rows<fusec::Sum<float>, kThreadsX, kThreadsY>(var_sum_part);

  const float mean_value = var_sum * 9.964923e-6f;
  if (threadIdx.x == 0) {
    mean[row] = mean_value;
  }
  float var_m2_part = fusec::Sum<float>::identity();
  for (int column = threadIdx.x * kVec; column < kColumns; column += kThreadsX * kVec) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float xf_value = fusec::to_float(x_row[column / kVec][v]);
      const float var_away = xf_value - mean_value;
      var_m2_part += var_away * var_away;
    }
  }
  const float var_m2 = fusec::block_reduce_rows<fusec::Sum<float>, kThreadsX, kThreadsY>(var_m2_part);

  const float rstd_value = rsqrtf(var_m2 * 9.964923e-6f + eps);
  if (threadIdx.x == 0) {
    rstd[row] = rstd_value;
  }
  for (int column = threadIdx.x * kVec; column < kColumns; column += kThreadsX * kVec) {
    fusec::Vec<fusec::f16, kVec> y_vec;
    const int part_over_392_part = column / 8 / 392;
    const int part_mod_392_part = column / 8 % 392;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float xf_value2 = fusec::to_float(x_row[column / kVec][v]);
      const float add_2 = (xf_value2 - mean_value) * rstd_value * w_value + b_value;
      y_vec[v] = fusec::convert<fusec::f16>(add_2);
    }
    fusec::store(y + part_over_392_part * 200704 + row * 3136 + part_mod_392_part * 8, y_vec);
  }
}
