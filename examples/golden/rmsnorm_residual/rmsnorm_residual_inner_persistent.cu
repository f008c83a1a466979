// rmsnorm_residual_inner_persistent: Adds the residual stream, in place, and normalises the sum by
//   its root mean square.
// Source: rmsnorm_residual.yaml
//   13: h = cast(x, f32) + cast(residual, f32)
//   14: sum_out = cast(h, bf16)
//   15: mean_square = mean(h * h, dims=[1], keepdim=true)
//   16: y = cast(h * rsqrt(mean_square + eps) * cast(w, f32), bf16)
// Schedule: 128 threads per row, 1 rows per block, accesses of 8 elements; the row stays in
//   registers.
#include "combine.cuh"
#include "math.cuh"
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
    rmsnorm_residual_inner_persistent(const fusec::bf16* __restrict__ x,
                                      fusec::bf16* residual,
                                      const fusec::bf16* __restrict__ w,
                                      fusec::bf16* __restrict__ y,
                                      float eps) {
  const int row = blockIdx.x;
  fusec::Vec<fusec::bf16, kVec> residual_row[kChunks];
  fusec::Vec<fusec::bf16, kVec> x_row[kChunks];

  // The row stays in registers between the phases.
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    residual_row[c] = fusec::load<kVec>(residual + row * kColumns + column);
    x_row[c] = fusec::load_readonly<kVec>(x + row * kColumns + column);
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
    fusec::store(residual + row * kColumns + column, sum_out_vec);
  }
  const float sum_1 = fusec::block_reduce_rows<fusec::Sum<float>, kThreadsX, kThreadsY>(sum_1_part);

  const float add_1 = fusec::divide(sum_1, static_cast<float>(kColumns)) + eps;
  const float rsqrt_1 = rsqrtf(add_1);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    const auto w_vec = fusec::load_readonly<kVec>(w + column);
    fusec::Vec<fusec::bf16, kVec> y_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float h = fusec::to_float(x_row[c][v]) + fusec::to_float(residual_row[c][v]);
      y_vec[v] = fusec::convert<fusec::bf16>(h * rsqrt_1 * fusec::to_float(w_vec[v]));
    }
    fusec::store(y + row * kColumns + column, y_vec);
  }
}
