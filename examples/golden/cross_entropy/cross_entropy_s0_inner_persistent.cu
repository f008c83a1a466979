// cross_entropy_s0_inner_persistent: Cross entropy as the log-sum-exp of each row of logits less
//   the logit of the true class.
// Source: examples/cross_entropy.yaml
//   13: l = cast(logits, f32)
//   14: top = max(l, dims=[1])
//   15: total = sum(exp(sub(l, broadcast(top, [false, true]))), dims=[1])
//   16: lse = add(log(total), top)
//   17: loss = sub(lse, picked)
// Schedule: 512 threads per row, 1 rows per block, accesses of 8 elements; the row stays in
//   registers.
#include "combine.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;         // elements per access
constexpr int kThreadsX = 512;  // threads per row
constexpr int kThreadsY = 1;    // rows per block
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kColumns = 32000;  // elements of a row
constexpr int kChunks = 8;       // vectors of a row per thread

extern "C" __global__ void __launch_bounds__(kThreads)
    cross_entropy_s0_inner_persistent(const fusec::bf16* __restrict__ logits,
                                      const float* __restrict__ picked,
                                      float* __restrict__ lse,
                                      float* __restrict__ loss) {
  const int row = blockIdx.x;
  fusec::Vec<fusec::bf16, kVec> logits_row[kChunks];

  const float picked_value = picked[row];
  // The row stays in registers between the phases.
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    if (column >= kColumns) continue;
    logits_row[c] = fusec::load_readonly<kVec>(logits + row * kColumns + column);
  }
  float top_part = fusec::Max<float>::identity();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    if (column >= kColumns) continue;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float l = fusec::to_float(logits_row[c][v]);
      top_part = fusec::Max<float>::combine(top_part, l);
    }
  }
  const float top = fusec::block_reduce_rows<fusec::Max<float>, kThreadsX, kThreadsY>(top_part);

  float total_part = fusec::Sum<float>::identity();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    if (column >= kColumns) continue;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float l = fusec::to_float(logits_row[c][v]);
      total_part += expf(l - top);
    }
  }
  const float total_value =
      fusec::block_reduce_rows<fusec::Sum<float>, kThreadsX, kThreadsY>(total_part);

  const float lse_value = logf(total_value) + top;
  const float loss_value = lse_value - picked_value;
  if (threadIdx.x == 0) {
    lse[row] = lse_value;
    loss[row] = loss_value;
  }
}
