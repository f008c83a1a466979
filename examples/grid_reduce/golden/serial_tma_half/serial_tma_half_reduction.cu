// serial_tma_half_reduction: Sums of long columns in a work buffer of f16; each turn rounds to it.
// Source: serial_tma_half.yaml
//   8: y = sum(x, dims=[0])
// Schedule: 32 vectors of 8 columns by 8 rows at a time; 8 blocks combine their parts of a result
//   by reducing bulk copies, in 16 bits, serially.
#include "combine.cuh"
#include "combine_in_bulk.cuh"
#include "grid.cuh"
#include "reduce.cuh"
#include "rounding.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;        // columns per access
constexpr int kThreadsX = 32;  // adjacent vectors of columns
constexpr int kThreadsY = 8;   // rows at a time
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kSplits = 8;                  // blocks that share a column
constexpr int kResults = kThreadsX * kVec;  // results of a block
using YValueLayout = fusec::InMemory<fusec::Sum<float>, fusec::f16>;

extern "C" __global__ void __launch_bounds__(kThreads)
    serial_tma_half_reduction(const fusec::f16* __restrict__ x,
                              fusec::f16* __restrict__ y,
                              fusec::f16* y_partials,
                              fusec::u32* arrived,
                              fusec::i64 R) {
  const int rows = R;
  const int columns = 1024;
  const int column_of_thread = (blockIdx.x * static_cast<int>(kThreadsX) + threadIdx.x) * kVec;
  // Columns past the end are clamped, so that every thread participates in the reductions.
  const bool is_column = column_of_thread < columns;
  const int column = is_column ? column_of_thread : columns - kVec;
  // Blocks start in ticket order, which is the order of their turns.
  const int split = fusec::take_block_ticket(arrived + blockIdx.x, kSplits);
  auto y_part = fusec::splat<float, kVec>(fusec::Sum<float>::identity());
#pragma unroll 4
  for (int row = split * kThreadsY + threadIdx.y; row < rows; row += kSplits * kThreadsY) {
    const auto x_vec = fusec::load_readonly<kVec>(x + row * columns + column);
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      y_part[v] += fusec::to_float(x_vec[v]);
    }
  }
  y_part = fusec::block_reduce_columns<fusec::Sum<float>, kThreadsX, kThreadsY>(y_part);

  fusec::f16* y_value_parts = fusec::parts_of_block<kResults>(y_partials);
  // Blocks combine their partial results in memory, in ticket order; the last one adds its own.
  fusec::u32* turn = arrived + gridDim.x + blockIdx.x;
  fusec::wait_turn(turn, split);
  if (split + 1 < kSplits) {
    fusec::combine_in_bulk<YValueLayout, kResults>(y_value_parts, y_part, threadIdx.x * kVec,
                                                   threadIdx.y == 0);
    fusec::release_turn(turn, split + 1);
    return;
  }
  if (threadIdx.y == 0) {
    // Resets the memory to zero for the next launch.
    y_part = fusec::combine_last<YValueLayout>(y_value_parts + threadIdx.x * kVec, y_part);
  }
  fusec::release_turn(turn, 0);

  if (threadIdx.y == 0 && is_column) {
    auto y_value = y_part;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      y_value[v] = fusec::round_to<fusec::f16>(y_value[v]);
    }
    fusec::Vec<fusec::f16, kVec> y_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      y_vec[v] = fusec::convert<fusec::f16>(y_value[v]);
    }
    fusec::store(y + column, y_vec);
  }
}
