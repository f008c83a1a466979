// two_pass_s1_reduction: The same layer norm in two passes, whose sums the blocks of a row add in
//   turns by reducing bulk copies.
// Source: two_pass.yaml
//   8: mean = mean(x, dims=[1], keepdim=true)
//   9: away = sub(x, mean)
//   10: var = mean(mul(away, away), dims=[1], keepdim=true)
//   11: y = mul(away, rsqrt(add(var, 1e-5)))
// Schedule: 512 threads along each row, 1 rows per block, accesses of 4 elements; 64 blocks combine
//   their parts of a result by reducing bulk copies, serially.
#include "combine.cuh"
#include "combine_in_bulk.cuh"
#include "grid.cuh"
#include "math.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 4;         // elements per access
constexpr int kThreadsX = 512;  // threads per row
constexpr int kThreadsY = 1;    // rows per block
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kSplits = 64;          // blocks that share a row
constexpr int kResults = kThreadsY;  // results of a block
using Sum2Layout = fusec::InMemory<fusec::Sum<float>, float>;
constexpr int kAhead = 4;  // vectors per thread that are loaded ahead of use

extern "C" __global__ void __launch_bounds__(kThreads)
    two_pass_s1_reduction(const float* __restrict__ x,
                          const float* __restrict__ sum_1,
                          float* __restrict__ rsqrt_1,
                          float* sum_2_partials,
                          fusec::u32* arrived,
                          fusec::i64 R) {
  const int rows = R;
  const int columns = 4194304;
  // Blocks start in ticket order, which is the order of their turns.
  const int split = fusec::take_block_ticket(arrived + blockIdx.x, kSplits);
  // Rows past the end are clamped, so that every thread participates in the reductions.
  const int row_of_thread = blockIdx.x * static_cast<int>(kThreadsY) + threadIdx.y;
  const bool is_row = row_of_thread < rows;
  const int row = is_row ? row_of_thread : rows - 1;
  const float sum_1_value = sum_1[row];
  const float mean = fusec::divide(sum_1_value, static_cast<float>(columns));
  float sum_2_part = fusec::Sum<float>::identity();
  constexpr int kStep = kSplits * kThreadsX * kVec;
  for (int first = (split * kThreadsX + threadIdx.x) * kVec; first < columns;
       first += kAhead * kStep) {
    fusec::Vec<float, kVec> x_ahead[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int column = first + u * kStep;
      if (column < columns) {
        x_ahead[u] = fusec::load_streaming<kVec>(x + row * columns + column);
      }
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int column = first + u * kStep;
      if (column >= columns) break;
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        const float away = x_ahead[u][v] - mean;
        sum_2_part += away * away;
      }
    }
  }
  sum_2_part = fusec::block_reduce_rows<fusec::Sum<float>, kThreadsX, kThreadsY>(sum_2_part);

  float* sum_2_parts = fusec::parts_of_block<kResults>(sum_2_partials);
  // Blocks combine their partial results in memory, in ticket order; the last one adds its own.
  fusec::u32* turn = arrived + gridDim.x + blockIdx.x;
  fusec::wait_turn(turn, split);
  if (split + 1 < kSplits) {
    fusec::combine_in_bulk<Sum2Layout, kResults>(sum_2_parts, sum_2_part, threadIdx.y,
                                                 threadIdx.x == 0);
    fusec::release_turn(turn, split + 1);
    return;
  }
  if (threadIdx.x == 0) {
    // Resets the memory to zero for the next launch.
    sum_2_part = fusec::combine_last<Sum2Layout>(sum_2_parts + threadIdx.y, sum_2_part);
  }
  fusec::release_turn(turn, 0);

  if (threadIdx.x == 0 && is_row) {
    const float sum_2 = sum_2_part;
    const float add_1 = fusec::divide(sum_2, static_cast<float>(columns)) + 1e-5f;
    const float rsqrt_1_value = rsqrtf(add_1);
    rsqrt_1[row] = rsqrt_1_value;
  }
}
