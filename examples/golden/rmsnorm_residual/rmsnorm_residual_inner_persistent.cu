// rmsnorm_residual_inner_persistent: Adds the residual stream, in place, and normalises the sum by its root mean square.
// Source: examples/rmsnorm_residual.yaml
//   cast_1 = cast(x, dtype=f32)
//   cast_2 = cast(residual, dtype=f32)
//   h = add(cast_1, cast_2)
//   mul_1 = mul(h, h)
//   sum_1 = sum(mul_1, dims=[1], dtype=None)
//   sum_1_kept = broadcast(sum_1, is_broadcast_dim=[false, true])
//   mean_square = div(sum_1_kept, size_1)
//   add_1 = add(mean_square, eps)
//   rsqrt_1 = rsqrt(add_1)
//   mul_2 = mul(h, rsqrt_1)
//   cast_3 = cast(w, dtype=f32)
//   cast_3_broadcast = broadcast_in_dim(cast_3, shape=[T, 4096], broadcast_dims=[1])
//   mul_3 = mul(mul_2, cast_3_broadcast)
//   y = cast(mul_3, dtype=bf16)
//   sum_out = cast(h, dtype=bf16)
// Schedule: 128 threads per row, 1 rows per block, accesses of 8 elements; the row stays in registers.
#include "combine.cuh"
#include "math.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;  // elements per access
constexpr int kThreadsX = 128;  // threads per row
constexpr int kThreadsY = 1;  // rows per block
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kColumns = 4096;  // elements of a row
constexpr int kChunks = 4;  // vectors of a row per thread
static_assert(kChunks * kThreadsX * kVec == kColumns);

extern "C" __global__ void __launch_bounds__(kThreads) rmsnorm_residual_inner_persistent(
    const fusec::bf16* __restrict__ x,
    fusec::bf16* residual,
    const fusec::bf16* __restrict__ w,
    fusec::bf16* __restrict__ y,
    float eps,
    fusec::i64 T) {
  const int row = blockIdx.x;
  fusec::Vec<fusec::bf16, kVec> residual_row[kChunks];
  fusec::Vec<fusec::bf16, kVec> x_row[kChunks];

  // The row stays in registers between the phases.
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    residual_row[c] = fusec::load<kVec>(residual + row * 4096 + column);
    x_row[c] = fusec::load_readonly<kVec>(x + row * 4096 + column);
  }
  float sum_1_part = fusec::Sum<float>::identity();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    fusec::Vec<fusec::bf16, kVec> sum_out_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float h = fusec::to_float(x_row[c][v]) + fusec::to_float(residual_row[c][v]);
      sum_1_part += h * h;
      sum_out_vec[v] = fusec::convert<fusec::bf16>(h);
    }
    fusec::store(residual + row * 4096 + column, sum_out_vec);
  }
  const float sum_1 = fusec::block_reduce_rows<fusec::Sum<float>, kThreadsX, kThreadsY>(sum_1_part);

  const float rsqrt_1 = rsqrtf(fusec::divide(sum_1, 4096.0f) + eps);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    const auto w_vec = fusec::load_readonly<kVec>(w + column);
    fusec::Vec<fusec::bf16, kVec> y_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float h_value = fusec::to_float(x_row[c][v]) + fusec::to_float(residual_row[c][v]);
      y_vec[v] = fusec::convert<fusec::bf16>(h_value * rsqrt_1 * fusec::to_float(w_vec[v]));
    }
    fusec::store(y + row * 4096 + column, y_vec);
  }
}
