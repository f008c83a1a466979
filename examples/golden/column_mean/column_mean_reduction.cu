// column_mean_reduction: The mean and the largest magnitude of every column.
// Source: column_mean.yaml
//   8: average = mean(x, dims=[0])
//   9: largest = max(abs(x), dims=[0])
// Schedule: 32 vectors of 4 columns by 16 rows at a time; 17 blocks share a result, the last one
//   combines.
#include "combine.cuh"
#include "grid.cuh"
#include "math.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 4;        // columns per access
constexpr int kThreadsX = 32;  // adjacent vectors of columns
constexpr int kThreadsY = 16;  // rows at a time
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kSplits = 17;  // blocks that share a column

extern "C" __global__ void __launch_bounds__(kThreads)
    column_mean_reduction(const float* __restrict__ x,
                          float* __restrict__ average,
                          float* __restrict__ largest,
                          float* sum_1_partials,
                          float* largest_partials,
                          fusec::u32* arrived,
                          fusec::i64 B) {
  const int rows = B;
  const int columns = 2048;
  const int column_of_thread = (blockIdx.x * static_cast<int>(kThreadsX) + threadIdx.x) * kVec;
  // Columns past the end are clamped, so that every thread participates in the reductions.
  const bool is_column = column_of_thread < columns;
  const int column = is_column ? column_of_thread : columns - kVec;
  auto sum_1_part = fusec::splat<float, kVec>(fusec::Sum<float>::identity());
  auto largest_part = fusec::splat<float, kVec>(fusec::Max<float>::identity());
#pragma unroll 4
  for (int row = blockIdx.y * kThreadsY + threadIdx.y; row < rows; row += kSplits * kThreadsY) {
    const auto x_vec = fusec::load_readonly<kVec>(x + row * columns + column);
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float x_value = x_vec[v];
      sum_1_part[v] += x_value;
      largest_part[v] = fusec::Max<float>::combine(largest_part[v], fabsf(x_value));
    }
  }
  sum_1_part = fusec::block_reduce_columns<fusec::Sum<float>, kThreadsX, kThreadsY>(sum_1_part);
  largest_part = fusec::block_reduce_columns<fusec::Max<float>, kThreadsX, kThreadsY>(largest_part);

  const int width = gridDim.x * static_cast<int>(kThreadsX);
  auto* sum_1_parts = reinterpret_cast<fusec::Vec<float, kVec>*>(sum_1_partials) +
                      blockIdx.x * kThreadsX + threadIdx.x;
  auto* largest_value_parts = reinterpret_cast<fusec::Vec<float, kVec>*>(largest_partials) +
                              blockIdx.x * kThreadsX + threadIdx.x;
  // Each block stores its partial results; the last one to arrive combines them in order.
  if (threadIdx.y == 0) {
    sum_1_parts[blockIdx.y * width] = sum_1_part;
    largest_value_parts[blockIdx.y * width] = largest_part;
  }
  if (!fusec::last_block(arrived + blockIdx.x, kSplits)) return;
  sum_1_part = fusec::splat<float, kVec>(fusec::Sum<float>::identity());
  for (int split = threadIdx.y; split < kSplits; split += kThreadsY) {
    sum_1_part = fusec::combine_each<fusec::Sum<float>>(sum_1_part, sum_1_parts[split * width]);
  }
  sum_1_part = fusec::block_reduce_columns<fusec::Sum<float>, kThreadsX, kThreadsY>(sum_1_part);
  largest_part = fusec::splat<float, kVec>(fusec::Max<float>::identity());
  for (int split = threadIdx.y; split < kSplits; split += kThreadsY) {
    largest_part =
        fusec::combine_each<fusec::Max<float>>(largest_part, largest_value_parts[split * width]);
  }
  largest_part = fusec::block_reduce_columns<fusec::Max<float>, kThreadsX, kThreadsY>(largest_part);

  if (threadIdx.y == 0 && is_column) {
    auto sum_1 = sum_1_part;
    auto largest_value = largest_part;
    fusec::Vec<float, kVec> average_vec;
    fusec::Vec<float, kVec> largest_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      average_vec[v] = fusec::divide(sum_1[v], fusec::convert<float>(B));
      largest_vec[v] = largest_value[v];
    }
    fusec::store(average + column, average_vec);
    fusec::store(largest + column, largest_vec);
  }
}
