// extremes_reduction: Largest and smallest elements of long rows, combined as unsigned integers of
//   the same order as they arrive; their bits do not depend on that.
// Source: extremes.yaml
//   10: high = max(x, dims=[1])
//   11: low = min(x, dims=[1])
// Schedule: 512 threads along each row, 1 rows per block, accesses of 4 elements; 16 blocks combine
//   their parts of a result by reducing bulk copies in arrival order, on which its bits do not
//   depend.
#include "combine.cuh"
#include "combine_in_bulk.cuh"
#include "grid.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 4;         // elements per access
constexpr int kThreadsX = 512;  // threads per row
constexpr int kThreadsY = 1;    // rows per block
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kSplits = 16;          // blocks that share a row
constexpr int kResults = kThreadsY;  // results of a block
using HighValueLayout = fusec::InMemory<fusec::Max<float>, fusec::u32>;
using LowValueLayout = fusec::InMemory<fusec::Min<float>, fusec::u32>;
constexpr int kAhead = 4;  // vectors per thread that are loaded ahead of use

extern "C" __global__ void __launch_bounds__(kThreads, 4)
    extremes_reduction(const float* __restrict__ x,
                       float* __restrict__ high,
                       float* __restrict__ low,
                       fusec::u32* high_partials,
                       fusec::u32* low_partials,
                       fusec::u32* arrived,
                       fusec::i64 R) {
  const int rows = R;
  const int columns = 1048576;
  // Rows past the end are clamped, so that every thread participates in the reductions.
  const int row_of_thread = blockIdx.x * static_cast<int>(kThreadsY) + threadIdx.y;
  const bool is_row = row_of_thread < rows;
  const int row = is_row ? row_of_thread : rows - 1;
  float high_part = fusec::Max<float>::identity();
  float low_part = fusec::Min<float>::identity();
  constexpr int kStep = kSplits * kThreadsX * kVec;
  for (int first = (blockIdx.y * kThreadsX + threadIdx.x) * kVec; first < columns;
       first += kAhead * kStep) {
    fusec::Vec<float, kVec> x_ahead[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int column = first + u * kStep;
      if (column < columns) {
        x_ahead[u] = fusec::load_readonly<kVec>(x + row * columns + column);
      }
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int column = first + u * kStep;
      if (column >= columns) break;
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        const float x_value = x_ahead[u][v];
        high_part = fusec::Max<float>::combine(high_part, x_value);
        low_part = fusec::Min<float>::combine(low_part, x_value);
      }
    }
  }
  high_part = fusec::block_reduce_rows<fusec::Max<float>, kThreadsX, kThreadsY>(high_part);
  low_part = fusec::block_reduce_rows<fusec::Min<float>, kThreadsX, kThreadsY>(low_part);

  fusec::u32* high_value_parts = fusec::parts_of_block<kResults>(high_partials);
  fusec::u32* low_value_parts = fusec::parts_of_block<kResults>(low_partials);
  // Blocks combine their partial results in memory, in order of arrival; the last one loads
  // the result.
  fusec::combine_in_bulk<HighValueLayout, kResults>(high_value_parts, high_part, threadIdx.y,
                                                    threadIdx.x == 0);
  fusec::combine_in_bulk<LowValueLayout, kResults>(low_value_parts, low_part, threadIdx.y,
                                                   threadIdx.x == 0);
  if (!fusec::last_block(arrived + blockIdx.x, kSplits)) return;
  if (threadIdx.x == 0) {
    // Resets the memory to zero for the next launch.
    high_part = fusec::take_combined<HighValueLayout>(high_value_parts + threadIdx.y, high_part);
    low_part = fusec::take_combined<LowValueLayout>(low_value_parts + threadIdx.y, low_part);
  }

  if (threadIdx.x == 0 && is_row) {
    const float high_value = high_part;
    const float low_value = low_part;
    high[row] = high_value;
    low[row] = low_value;
  }
}
