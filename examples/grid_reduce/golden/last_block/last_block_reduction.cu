// last_block_reduction: Sums of long rows; the last block of a row adds the parts of all blocks, in
//   their order.
// Source: last_block.yaml
//   8: y = sum(x, dims=[1])
// Schedule: 512 threads along each row, 1 rows per block, accesses of 4 elements; 16 blocks share a
//   result, the last one combines.
#include "combine.cuh"
#include "grid.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 4;         // elements per access
constexpr int kThreadsX = 512;  // threads per row
constexpr int kThreadsY = 1;    // rows per block
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kSplits = 16;  // blocks that share a row
constexpr int kAhead = 4;    // vectors per thread that are loaded ahead of use

extern "C" __global__ void __launch_bounds__(kThreads, 4)
    last_block_reduction(const float* __restrict__ x,
                         float* __restrict__ y,
                         float* y_partials,
                         fusec::u32* arrived,
                         fusec::i64 R) {
  const int rows = R;
  const int columns = 1048576;
  // Rows past the end are clamped, so that every thread participates in the reductions.
  const int row_of_thread = blockIdx.x * static_cast<int>(kThreadsY) + threadIdx.y;
  const bool is_row = row_of_thread < rows;
  const int row = is_row ? row_of_thread : rows - 1;
  float y_part = fusec::Sum<float>::identity();
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
        y_part += x_ahead[u][v];
      }
    }
  }
  y_part = fusec::block_reduce_rows<fusec::Sum<float>, kThreadsX, kThreadsY>(y_part);

  auto* y_value_parts = reinterpret_cast<float*>(y_partials) + row * kSplits;
  // Each block stores its partial results; the last one to arrive combines them in order.
  if (threadIdx.x == 0 && is_row) {
    y_value_parts[blockIdx.y] = y_part;
  }
  if (!fusec::last_block(arrived + blockIdx.x, kSplits)) return;
  y_part = fusec::Sum<float>::identity();
  for (int split = threadIdx.x; split < kSplits; split += kThreadsX) {
    y_part = fusec::Sum<float>::combine(y_part, y_value_parts[split]);
  }
  y_part = fusec::block_reduce_rows<fusec::Sum<float>, kThreadsX, kThreadsY>(y_part);

  if (threadIdx.x == 0 && is_row) {
    const float y_value = y_part;
    y[row] = y_value;
  }
}
