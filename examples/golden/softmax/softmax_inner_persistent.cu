// softmax_inner_persistent: Softmax over the last axis, shifted by the maximum of each row.
// Source: softmax.yaml
//   10: xf = cast(x, f32)
//   11: shifted = xf - max(xf, dims=[1], keepdim=true)
//   12: e = exp(shifted)
//   13: y = cast(e / sum(e, dims=[1], keepdim=true), bf16)
// Schedule: 128 threads per row, 1 rows per block, accesses of 8 elements; the row stays in
//   registers.
#include "combine.cuh"
#include "fast_math.cuh"
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
    softmax_inner_persistent(const fusec::bf16* __restrict__ x, fusec::bf16* __restrict__ y) {
  const int row = blockIdx.x;
  fusec::Vec<fusec::bf16, kVec> x_row[kChunks];
  fusec::Vec<float, kVec> e_kept[kChunks];

  // The row stays in registers between the phases.
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    x_row[c] = fusec::load_readonly<kVec>(x + row * kColumns + column);
  }
  float max_1_part = fusec::Max<float>::identity();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float xf = fusec::to_float(x_row[c][v]);
      max_1_part = fusec::Max<float>::combine(max_1_part, xf);
    }
  }
  const float max_1 = fusec::block_reduce_rows<fusec::Max<float>, kThreadsX, kThreadsY>(max_1_part);

  float sum_1_part = fusec::Sum<float>::identity();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float xf = fusec::to_float(x_row[c][v]);
      const float e_value = fusec::exp_approx(xf - max_1);
      sum_1_part += e_value;
      e_kept[c][v] = e_value;
    }
  }
  const float sum_1 = fusec::block_reduce_rows<fusec::Sum<float>, kThreadsX, kThreadsY>(sum_1_part);

  const float div_1_reciprocal = 1.0f / sum_1;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    fusec::Vec<fusec::bf16, kVec> y_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      y_vec[v] = fusec::convert<fusec::bf16>(e_kept[c][v] * div_1_reciprocal);
    }
    fusec::store(y + row * kColumns + column, y_vec);
  }
}
