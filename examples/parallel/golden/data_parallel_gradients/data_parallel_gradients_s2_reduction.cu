// data_parallel_gradients_s2_reduction: The gradients of a linear layer, summed over the ranks.
// Source: data_parallel_gradients.yaml
//   11: db = cast(sum(cast(dy, f32), dims=[0]), bf16)
// Schedule: 32 vectors of 8 columns by 32 rows at a time; 8 blocks share a result, the last one
//   combines.
#include "combine.cuh"
#include "grid.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;        // columns per access
constexpr int kThreadsX = 32;  // adjacent vectors of columns
constexpr int kThreadsY = 32;  // rows at a time
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kSplits = 8;  // blocks that share a column

extern "C" __global__ void __launch_bounds__(kThreads)
    data_parallel_gradients_s2_reduction(const fusec::bf16* __restrict__ dy,
                                         float* __restrict__ sum_1_partial,
                                         float* sum_1_partial_partials,
                                         fusec::u32* arrived,
                                         fusec::i64 T) {
  const int rows = T;
  const int columns = 4096;
  const int column_of_thread = (blockIdx.x * static_cast<int>(kThreadsX) + threadIdx.x) * kVec;
  // Columns past the end are clamped, so that every thread participates in the reductions.
  const bool is_column = column_of_thread < columns;
  const int column = is_column ? column_of_thread : columns - kVec;
  auto sum_1_partial_part = fusec::splat<float, kVec>(fusec::Sum<float>::identity());
#pragma unroll 4
  for (int row = blockIdx.y * kThreadsY + threadIdx.y; row < rows; row += kSplits * kThreadsY) {
    const auto dy_vec = fusec::load_readonly<kVec>(dy + row * columns + column);
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      sum_1_partial_part[v] += fusec::to_float(dy_vec[v]);
    }
  }
  sum_1_partial_part =
      fusec::block_reduce_columns<fusec::Sum<float>, kThreadsX, kThreadsY>(sum_1_partial_part);

  const int width = gridDim.x * static_cast<int>(kThreadsX);
  auto* sum_1_partial_value_parts =
      reinterpret_cast<fusec::Vec<float, kVec>*>(sum_1_partial_partials) + blockIdx.x * kThreadsX +
      threadIdx.x;
  // Each block stores its partial results; the last one to arrive combines them in order.
  if (threadIdx.y == 0) {
    sum_1_partial_value_parts[blockIdx.y * width] = sum_1_partial_part;
  }
  if (!fusec::last_block(arrived + blockIdx.x, kSplits)) return;
  sum_1_partial_part = fusec::splat<float, kVec>(fusec::Sum<float>::identity());
  for (int split = threadIdx.y; split < kSplits; split += kThreadsY) {
    sum_1_partial_part = fusec::combine_each<fusec::Sum<float>>(
        sum_1_partial_part, sum_1_partial_value_parts[split * width]);
  }
  sum_1_partial_part =
      fusec::block_reduce_columns<fusec::Sum<float>, kThreadsX, kThreadsY>(sum_1_partial_part);

  if (threadIdx.y == 0 && is_column) {
    auto sum_1_partial_value = sum_1_partial_part;
    fusec::Vec<float, kVec> sum_1_partial_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      sum_1_partial_vec[v] = sum_1_partial_value[v];
    }
    fusec::store(sum_1_partial + column, sum_1_partial_vec);
  }
}
