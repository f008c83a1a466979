// parallel_reduction: Sums of long columns, added in arrival order, so that their last bits vary
//   from run to run.
// Source: parallel.yaml
//   8: y = sum(x, dims=[0])
// Schedule: 32 vectors of 4 columns by 8 rows at a time; 33 blocks combine their parts of a result
//   by reducing bulk copies in arrival order, so that its bits may vary from run to run.
#include "combine.cuh"
#include "combine_in_bulk.cuh"
#include "grid.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 4;        // columns per access
constexpr int kThreadsX = 32;  // adjacent vectors of columns
constexpr int kThreadsY = 8;   // rows at a time
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kSplits = 33;                 // blocks that share a column
constexpr int kResults = kThreadsX * kVec;  // results of a block
using YValueLayout = fusec::InMemory<fusec::Sum<float>, float>;

extern "C" __global__ void __launch_bounds__(kThreads, 8)
    parallel_reduction(const float* __restrict__ x,
                       float* __restrict__ y,
                       float* y_partials,
                       fusec::u32* arrived,
                       fusec::i64 R) {
  const int rows = R;
  const int columns = 1024;
  const int column_of_thread = (blockIdx.x * static_cast<int>(kThreadsX) + threadIdx.x) * kVec;
  // Columns past the end are clamped, so that every thread participates in the reductions.
  const bool is_column = column_of_thread < columns;
  const int column = is_column ? column_of_thread : columns - kVec;
  auto y_part = fusec::splat<float, kVec>(fusec::Sum<float>::identity());
#pragma unroll 4
  for (int row = blockIdx.y * kThreadsY + threadIdx.y; row < rows; row += kSplits * kThreadsY) {
    const auto x_vec = fusec::load_readonly<kVec>(x + row * columns + column);
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      y_part[v] += x_vec[v];
    }
  }
  y_part = fusec::block_reduce_columns<fusec::Sum<float>, kThreadsX, kThreadsY>(y_part);

  float* y_value_parts = fusec::parts_of_block<kResults>(y_partials);
  // Blocks combine their partial results in memory, in order of arrival; the last one loads
  // the result.
  fusec::combine_in_bulk<YValueLayout, kResults>(y_value_parts, y_part, threadIdx.x * kVec,
                                                 threadIdx.y == 0);
  if (!fusec::last_block(arrived + blockIdx.x, kSplits)) return;
  if (threadIdx.y == 0) {
    // Resets the memory to zero for the next launch.
    y_part = fusec::take_combined<YValueLayout>(y_value_parts + threadIdx.x * kVec, y_part);
  }

  if (threadIdx.y == 0 && is_column) {
    auto y_value = y_part;
    fusec::Vec<float, kVec> y_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      y_vec[v] = y_value[v];
    }
    fusec::store(y + column, y_vec);
  }
}
