// cross_entropy_s1_reduction: Cross entropy as the log-sum-exp of each row of logits less the logit
//   of the true class.
// Source: examples/cross_entropy.yaml
//   18: mean_loss = mean(loss, dims=[0])
// Schedule: 16 threads along each row, 2 rows per block, accesses of 4 elements.
#include "combine.cuh"
#include "math.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 4;        // elements per access
constexpr int kThreadsX = 16;  // threads per row
constexpr int kThreadsY = 2;   // rows per block
constexpr int kThreads = kThreadsX * kThreadsY;

extern "C" __global__ void __launch_bounds__(kThreads)
    cross_entropy_s1_reduction(const float* __restrict__ loss, float* __restrict__ mean_loss) {
  const int rows = 1;
  const int columns = 256;
  // Rows past the end repeat the last one, so that every thread takes part in the reductions.
  const int row_of_thread = blockIdx.x * static_cast<int>(kThreadsY) + threadIdx.y;
  const bool is_row = row_of_thread < rows;
  const int row = is_row ? row_of_thread : rows - 1;
  float sum_1_part = fusec::Sum<float>::identity();
#pragma unroll 4
  for (int column = threadIdx.x * kVec; column < columns; column += kThreadsX * kVec) {
    const auto loss_vec = fusec::load_readonly<kVec>(loss + column);
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      sum_1_part += loss_vec[v];
    }
  }
  sum_1_part = fusec::block_reduce_rows<fusec::Sum<float>, kThreadsX, kThreadsY>(sum_1_part);

  if (threadIdx.x == 0 && is_row) {
    const float sum_1 = sum_1_part;
    const float mean_loss_value = fusec::divide(sum_1, static_cast<float>(columns));
    mean_loss[0] = mean_loss_value;
  }
}
