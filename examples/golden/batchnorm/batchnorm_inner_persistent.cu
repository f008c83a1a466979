// batchnorm_inner_persistent: Batch norm over N, H and W of an NCHW tensor, with the statistics of
//   the batch.
// Source: examples/batchnorm.yaml
//   11: xf = cast(x, f32)
//   12: var, mean = var_mean(xf, dims=[0, 2, 3], correction=0)
//   13: rstd = rsqrt(add(var, eps))
//   15: mean_c = broadcast(mean, [true, false, true, true])
//   16: rstd_c = broadcast(rstd, [true, false, true, true])
//   17: w_c = broadcast(w, [true, false, true, true])
//   18: b_c = broadcast(b, [true, false, true, true])
//   19: y = cast(add(mul(mul(sub(xf, mean_c), rstd_c), w_c), b_c), f16)
// Schedule: 512 threads per row, 1 rows per block, accesses of 8 elements; the row stays in shared
//   memory.
#include "combine.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;         // elements per access
constexpr int kThreadsX = 512;  // threads per row
constexpr int kThreadsY = 1;    // rows per block
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kColumns = 100352;  // elements of a row
constexpr int kXRow = 0;          // first byte of x_row

extern "C" __global__ void __launch_bounds__(kThreads)
    batchnorm_inner_persistent(const fusec::f16* __restrict__ x,
                               const float* __restrict__ w,
                               const float* __restrict__ b,
                               float* __restrict__ mean,
                               float* __restrict__ rstd,
                               fusec::f16* __restrict__ y,
                               float eps) {
  const int row = blockIdx.x;
  extern __shared__ __align__(16) char shared_memory[];
  auto* x_row = reinterpret_cast<fusec::Vec<fusec::f16, kVec>*>(shared_memory + kXRow);

  const float w_value = w[row];
  const float b_value = b[row];
  float var_sum_part = fusec::Sum<float>::identity();
  for (int column = threadIdx.x * kVec; column < kColumns; column += kThreadsX * kVec) {
    const int part_over_392 = column / kVec / 392;
    const int part_mod_392 = column / kVec % 392;
    x_row[column / kVec] =
        fusec::load_readonly<kVec>(x + part_over_392 * 200704 + row * 3136 + part_mod_392 * kVec);
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float xf = fusec::to_float(x_row[column / kVec][v]);
      var_sum_part += xf;
    }
  }
  const float var_sum =
      fusec::block_reduce_rows<fusec::Sum<float>, kThreadsX, kThreadsY>(var_sum_part);

  const float mean_value = var_sum * (1.0f / kColumns);
  if (threadIdx.x == 0) {
    mean[row] = mean_value;
  }
  float var_m2_part = fusec::Sum<float>::identity();
  for (int column = threadIdx.x * kVec; column < kColumns; column += kThreadsX * kVec) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float xf = fusec::to_float(x_row[column / kVec][v]);
      const float var_away = xf - mean_value;
      var_m2_part += var_away * var_away;
    }
  }
  const float var_m2 =
      fusec::block_reduce_rows<fusec::Sum<float>, kThreadsX, kThreadsY>(var_m2_part);

  const float rstd_value = rsqrtf(var_m2 * (1.0f / kColumns) + eps);
  if (threadIdx.x == 0) {
    rstd[row] = rstd_value;
  }
  for (int column = threadIdx.x * kVec; column < kColumns; column += kThreadsX * kVec) {
    fusec::Vec<fusec::f16, kVec> y_vec;
    const int part_over_392 = column / kVec / 392;
    const int part_mod_392 = column / kVec % 392;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float xf = fusec::to_float(x_row[column / kVec][v]);
      y_vec[v] = fusec::convert<fusec::f16>((xf - mean_value) * rstd_value * w_value + b_value);
    }
    fusec::store(y + part_over_392 * 200704 + row * 3136 + part_mod_392 * kVec, y_vec);
  }
}
