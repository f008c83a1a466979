// log_softmax_inner_persistent: Log-softmax over the last axis.
// Source: log_softmax.yaml
//   8: y = log_softmax(x, -1)
// Schedule: 128 threads per row, 1 rows per block, accesses of 4 elements; the row stays in
//   registers.
#include "combine.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 4;         // elements per access
constexpr int kThreadsX = 128;  // threads per row
constexpr int kThreadsY = 1;    // rows per block
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kColumns = 4096;  // elements of a row
constexpr int kChunks = 8;      // vectors of a row per thread
static_assert(kChunks * kThreadsX * kVec == kColumns);

extern "C" __global__ void __launch_bounds__(kThreads)
    log_softmax_inner_persistent(const float* __restrict__ x, float* __restrict__ y) {
  const int row = blockIdx.x;
  fusec::Vec<float, kVec> x_row[kChunks];

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
      const float x_value = x_row[c][v];
      max_1_part = fusec::Max<float>::combine(max_1_part, x_value);
    }
  }
  const float max_1 = fusec::block_reduce_rows<fusec::Max<float>, kThreadsX, kThreadsY>(max_1_part);

  float sum_1_part = fusec::Sum<float>::identity();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float x_value = x_row[c][v];
      const float sub_1 = x_value - max_1;
      sum_1_part += expf(sub_1);
    }
  }
  const float sum_1 = fusec::block_reduce_rows<fusec::Sum<float>, kThreadsX, kThreadsY>(sum_1_part);

  const float log_1 = logf(sum_1);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    fusec::Vec<float, kVec> y_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float x_value = x_row[c][v];
      const float sub_1 = x_value - max_1;
      y_vec[v] = sub_1 - log_1;
    }
    fusec::store(y + row * kColumns + column, y_vec);
  }
}
