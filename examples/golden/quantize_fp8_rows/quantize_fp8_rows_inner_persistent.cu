// quantize_fp8_rows_inner_persistent: Scale every row to the range of fp8 and keep the scales.
// Source: quantize_fp8_rows.yaml
//   10: xf = cast(x, f32)
//   11: amax = max(abs(xf), dims=[1], keepdim=true)
//   13: scale = maximum(amax, 1e-12) / 448.0
//   15: q = cast(xf / scale, f8e4m3)
// Schedule: 64 threads per row, 2 rows per block, accesses of 16 elements; the row stays in
//   registers.
#include "combine.cuh"
#include "math.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 16;       // elements per access
constexpr int kThreadsX = 64;  // threads per row
constexpr int kThreadsY = 2;   // rows per block
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kColumns = 4096;  // elements of a row
constexpr int kChunks = 4;      // vectors of a row per thread
static_assert(kChunks * kThreadsX * kVec == kColumns);

extern "C" __global__ void __launch_bounds__(kThreads)
    quantize_fp8_rows_inner_persistent(const fusec::bf16* __restrict__ x,
                                       float* __restrict__ scale,
                                       fusec::f8e4m3* __restrict__ q,
                                       fusec::i64 T) {
  const int rows = T;
  // Rows past the end are clamped, so that every thread participates in the reductions.
  const int row_of_thread = blockIdx.x * static_cast<int>(kThreadsY) + threadIdx.y;
  const bool is_row = row_of_thread < rows;
  const int row = is_row ? row_of_thread : rows - 1;
  fusec::Vec<fusec::bf16, kVec> x_row[kChunks];

  // The row stays in registers between the phases.
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    x_row[c] = fusec::load_readonly<kVec>(x + row * kColumns + column);
  }
  float amax_reduced_part = fusec::Max<float>::identity();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float xf = fusec::to_float(x_row[c][v]);
      amax_reduced_part = fusec::Max<float>::combine(amax_reduced_part, fabsf(xf));
    }
  }
  const float amax_reduced =
      fusec::block_reduce_rows<fusec::Max<float>, kThreadsX, kThreadsY>(amax_reduced_part);

  const float scale_value = fusec::divide(fusec::maximum(amax_reduced, 1e-12f), 448.0f);
  const float div_1_reciprocal = 1.0f / scale_value;
  if (threadIdx.x == 0 && is_row) {
    scale[row] = scale_value;
  }
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    fusec::Vec<fusec::f8e4m3, kVec> q_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float xf = fusec::to_float(x_row[c][v]);
      q_vec[v] = fusec::convert<fusec::f8e4m3>(xf * div_1_reciprocal);
    }
    if (is_row) {
      fusec::store(q + row * kColumns + column, q_vec);
    }
  }
}
