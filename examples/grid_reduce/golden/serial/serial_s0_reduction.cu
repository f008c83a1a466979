// serial_s0_reduction: Layer norm of rows that many blocks share; in turns they merge their Welford
//   states by loads and stores.
// Source: serial.yaml
//   9: var, mean = var_mean(x, dims=[1], correction=0, keepdim=true)
// Schedule: 512 threads along each row, 1 rows per block, accesses of 4 elements; 64 blocks combine
//   their parts of a result by loads and stores, serially.
#include "grid.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"
#include "welford.cuh"

constexpr int kVec = 4;         // elements per access
constexpr int kThreadsX = 512;  // threads per row
constexpr int kThreadsY = 1;    // rows per block
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kSplits = 64;  // blocks that share a row
constexpr int kAhead = 4;    // vectors per thread that are loaded ahead of use

extern "C" __global__ void __launch_bounds__(kThreads)
    serial_s0_reduction(const float* __restrict__ x,
                        float* __restrict__ var_reduced,
                        float* __restrict__ mean_reduced,
                        float* var_reduced_partials,
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
  fusec::Welford<float> var_reduced_part = fusec::WelfordMerge<float>::identity();
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
      float var_reduced_values[kVec];
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        var_reduced_values[v] = x_ahead[u][v];
      }
      var_reduced_part.push(var_reduced_values);
    }
  }
  var_reduced_part =
      fusec::block_reduce_rows<fusec::WelfordMerge<float>, kThreadsX, kThreadsY>(var_reduced_part);

  auto* var_reduced_value_parts =
      reinterpret_cast<fusec::Welford<float>*>(var_reduced_partials) + row;
  // Blocks combine their partial results with those of earlier blocks, in ticket order.
  fusec::u32* turn = arrived + gridDim.x + blockIdx.x;
  fusec::wait_turn(turn, split);
  if (threadIdx.x == 0 && is_row) {
    if (split > 0)
      var_reduced_part =
          fusec::WelfordMerge<float>::combine(*var_reduced_value_parts, var_reduced_part);
    if (split + 1 < kSplits) *var_reduced_value_parts = var_reduced_part;
  }
  fusec::release_turn(turn, (split + 1) % kSplits);
  if (split + 1 < kSplits) return;

  if (threadIdx.x == 0 && is_row) {
    const fusec::Welford<float> var_reduced_value = var_reduced_part;
    var_reduced[row] = var_reduced_value.variance(0.0f);
    mean_reduced[row] = var_reduced_value.mean;
  }
}
