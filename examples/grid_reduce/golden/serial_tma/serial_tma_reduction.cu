// serial_tma_reduction: Sums of long rows; the blocks of a row add to it in turns, by reducing bulk
//   copies.
// Source: serial_tma.yaml
//   8: y = sum(x, dims=[1])
// Schedule: 512 threads along each row, 1 rows per block, accesses of 4 elements; 16 blocks combine
//   their parts of a result by reducing bulk copies, serially.
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
using YValueLayout = fusec::InMemory<fusec::Sum<float>, float>;
constexpr int kAhead = 4;  // vectors per thread that are loaded ahead of use

extern "C" __global__ void __launch_bounds__(kThreads, 4)
    serial_tma_reduction(const float* __restrict__ x,
                         float* __restrict__ y,
                         float* y_partials,
                         fusec::u32* arrived,
                         fusec::i64 R) {
  const int rows = R;
  const int columns = 1048576;
  // Blocks start in ticket order, which is the order of their turns.
  const int split = fusec::take_block_ticket(arrived + blockIdx.x, kSplits);
  // Rows past the end are clamped, so that every thread participates in the reductions.
  const int row_of_thread = blockIdx.x * static_cast<int>(kThreadsY) + threadIdx.y;
  const bool is_row = row_of_thread < rows;
  const int row = is_row ? row_of_thread : rows - 1;
  float y_part = fusec::Sum<float>::identity();
  constexpr int kStep = kSplits * kThreadsX * kVec;
  for (int first = (split * kThreadsX + threadIdx.x) * kVec; first < columns;
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

  float* y_value_parts = fusec::parts_of_block<kResults>(y_partials);
  // Blocks combine their partial results in memory, in ticket order; the last one adds its own.
  fusec::u32* turn = arrived + gridDim.x + blockIdx.x;
  fusec::wait_turn(turn, split);
  if (split + 1 < kSplits) {
    fusec::combine_in_bulk<YValueLayout, kResults>(y_value_parts, y_part, threadIdx.y,
                                                   threadIdx.x == 0);
    fusec::release_turn(turn, split + 1);
    return;
  }
  if (threadIdx.x == 0) {
    // Resets the memory to zero for the next launch.
    y_part = fusec::combine_last<YValueLayout>(y_value_parts + threadIdx.y, y_part);
  }
  fusec::release_turn(turn, 0);

  if (threadIdx.x == 0 && is_row) {
    const float y_value = y_part;
    y[row] = y_value;
  }
}
