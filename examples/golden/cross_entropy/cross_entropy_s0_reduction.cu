// cross_entropy_s0_reduction: Cross entropy as the log-sum-exp of each row of logits less the logit
//   of the true class.
// Source: cross_entropy.yaml
//   13: l = cast(logits, f32)
//   14: top = max(l, dims=[1])
//   16: lse = log(total) + top
//   17: loss = lse - picked
// Schedule: 512 threads along each row, 1 rows per block, accesses of 8 elements.
#include "online.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;         // elements per access
constexpr int kThreadsX = 512;  // threads per row
constexpr int kThreadsY = 1;    // rows per block
constexpr int kThreads = kThreadsX * kThreadsY;

extern "C" __global__ void __launch_bounds__(kThreads)
    cross_entropy_s0_reduction(const fusec::bf16* __restrict__ logits,
                               const float* __restrict__ picked,
                               float* __restrict__ lse,
                               float* __restrict__ loss,
                               fusec::i64 T) {
  const int rows = T;
  const int columns = 32000;
  // Rows past the end are clamped, so that every thread participates in the reductions.
  const int row_of_thread = blockIdx.x * static_cast<int>(kThreadsY) + threadIdx.y;
  const bool is_row = row_of_thread < rows;
  const int row = is_row ? row_of_thread : rows - 1;
  const float picked_value = picked[row];
  fusec::ExpSum<float> top_part = fusec::ExpSumMerge<float>::identity();
#pragma unroll
  for (int first = 0; first < columns; first += kThreadsX * kVec) {
    const int column = first + threadIdx.x * kVec;
    if (first + kThreadsX * kVec > columns && column >= columns) continue;
    const auto logits_vec = fusec::load_readonly<kVec>(logits + row * columns + column);
    float top_values[kVec];
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      top_values[v] = fusec::to_float(logits_vec[v]);
    }
    if (is_row) {
      top_part.push(top_values);
    }
  }
  top_part = fusec::block_reduce_rows<fusec::ExpSumMerge<float>, kThreadsX, kThreadsY>(top_part);

  if (threadIdx.x == 0 && is_row) {
    const fusec::ExpSum<float> top = top_part;
    const float lse_value = logf(top.sum()) + top.top;
    const float loss_value = lse_value - picked_value;
    lse[row] = lse_value;
    loss[row] = loss_value;
  }
}
