// matmul_reduce_scatter_s3_reduction: A product whose sum is scattered, the rows of a rank at a
//   time.
// Source: matmul_reduce_scatter.yaml
//   11: p = x @ w
//   12: y = relu(p)
// Schedule: 256 vectors of 8 columns by 1 rows at a time.
#include "combine.cuh"
#include "math.cuh"
#include "reduce.cuh"
#include "rounding.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;         // columns per access
constexpr int kThreadsX = 256;  // adjacent vectors of columns
constexpr int kThreadsY = 1;    // rows at a time
constexpr int kThreads = kThreadsX * kThreadsY;

extern "C" __global__ void __launch_bounds__(kThreads)
    matmul_reduce_scatter_s3_reduction(const fusec::bf16* __restrict__ p_blocks,
                                       fusec::bf16* __restrict__ y,
                                       fusec::i64 M) {
  const int rows = 4;
  const int columns = M * 2048;
  const int column_of_thread = (blockIdx.x * static_cast<int>(kThreadsX) + threadIdx.x) * kVec;
  // Columns past the end are clamped, so that every thread participates in the reductions.
  const bool is_column = column_of_thread < columns;
  const int column = is_column ? column_of_thread : columns - kVec;
  auto p_part = fusec::splat<float, kVec>(fusec::Sum<float>::identity());
#pragma unroll
  for (int row = 0; row < rows; row += kThreadsY) {
    const auto p_blocks_vec = fusec::load_readonly<kVec>(p_blocks + row * (M * 2048) + column);
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      p_part[v] += fusec::to_float(p_blocks_vec[v]);
    }
  }
  p_part = fusec::block_reduce_columns<fusec::Sum<float>, kThreadsX, kThreadsY>(p_part);

  if (threadIdx.y == 0 && is_column) {
    auto p = p_part;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      p[v] = fusec::round_to<fusec::bf16>(p[v]);
    }
    fusec::Vec<fusec::bf16, kVec> y_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      y_vec[v] = fusec::convert<fusec::bf16>(fusec::relu(p[v]));
    }
    fusec::store(y + column, y_vec);
  }
}
