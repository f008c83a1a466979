// layernorm_backward_column_finish: Gradients of layer norm with respect to its input, weight and
//   bias.
// Source: layernorm_backward.yaml
//   25: dw = cast(sum(dyf * xn, dims=[0]), bf16)
//   26: db = cast(sum(dyf, dims=[0]), bf16)
// Schedule: 16 columns by 16 partial rows at a time; partial rows are added in a fixed order.
#include "combine.cuh"
#include "overlap.cuh"
#include "reduce_strided.cuh"
#include "types.cuh"

constexpr int kThreads = 256;
constexpr int kColumns = 4096;

extern "C" __global__ void __launch_bounds__(kThreads)
    layernorm_backward_column_finish(fusec::bf16* __restrict__ dw,
                                     fusec::bf16* __restrict__ db,
                                     float* sum_3_partials,
                                     float* sum_4_partials) {
  fusec::wait_for_kernels_before();
  int block = blockIdx.x;
  // The sums over i0.
  constexpr int kThreadsX = 16;  // columns per block
  constexpr int kThreadsY = 16;  // partial rows at a time
  constexpr int kRanges = 128;   // partial rows of a group
  const int column_of_thread = block * kThreadsX + threadIdx.x % kThreadsX;
  // Columns past the end are clamped, so that every thread participates in the reductions.
  const int column = min(column_of_thread, kColumns - 1);
  float sum_3_part = fusec::Sum<float>::identity();
  float sum_4_part = fusec::Sum<float>::identity();
#pragma unroll 8
  for (int range = threadIdx.x / kThreadsX; range < kRanges; range += kThreadsY) {
    const int place = range * kColumns + column;
    sum_3_part += sum_3_partials[place];
    sum_4_part += sum_4_partials[place];
  }
  const float sum_3 =
      fusec::block_reduce_strided<fusec::Sum<float>, kThreadsX, kThreadsY>(sum_3_part);
  const float sum_4 =
      fusec::block_reduce_strided<fusec::Sum<float>, kThreadsX, kThreadsY>(sum_4_part);
  if (threadIdx.x >= kThreadsX || column_of_thread >= kColumns) return;
  dw[column] = fusec::convert<fusec::bf16>(sum_3);
  db[column] = fusec::convert<fusec::bf16>(sum_4);
}
