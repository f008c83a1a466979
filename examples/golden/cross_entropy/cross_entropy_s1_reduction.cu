// cross_entropy_s1_reduction: Cross entropy as the log-sum-exp of each row of logits less the logit
//   of the true class.
// Source: cross_entropy.yaml
//   18: mean_loss = mean(loss, dims=[0])
// Schedule: 64 threads along each row, 1 rows per block, accesses of 1 elements.
#include "combine.cuh"
#include "math.cuh"
#include "reduce.cuh"
#include "types.cuh"

constexpr int kVec = 1;        // elements per access
constexpr int kThreadsX = 64;  // threads per row
constexpr int kThreadsY = 1;   // rows per block
constexpr int kThreads = kThreadsX * kThreadsY;

extern "C" __global__ void __launch_bounds__(kThreads)
    cross_entropy_s1_reduction(const float* __restrict__ loss,
                               float* __restrict__ mean_loss,
                               fusec::i64 T) {
  const int rows = 1;
  const int columns = T;
  // Rows past the end are clamped, so that every thread participates in the reductions.
  const int row_of_thread = blockIdx.x * static_cast<int>(kThreadsY) + threadIdx.y;
  const bool is_row = row_of_thread < rows;
  const int row = is_row ? row_of_thread : rows - 1;
  float sum_1_part = fusec::Sum<float>::identity();
#pragma unroll 4
  for (int column = threadIdx.x * kVec; column < columns; column += kThreadsX * kVec) {
    const float loss_value = loss[column];
    sum_1_part += loss_value;
  }
  sum_1_part = fusec::block_reduce_rows<fusec::Sum<float>, kThreadsX, kThreadsY>(sum_1_part);

  if (threadIdx.x == 0 && is_row) {
    const float sum_1 = sum_1_part;
    const float mean_loss_value = fusec::divide(sum_1, fusec::convert<float>(T));
    mean_loss[0] = mean_loss_value;
  }
}
