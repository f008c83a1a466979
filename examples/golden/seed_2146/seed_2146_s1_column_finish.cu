// seed_2146_s1_column_finish: Backward pass of a modulated layer norm, from an nvFuser script.
// Source: seed_2146.yaml
//   53: T62 = sum(T50, dims=[0, 1])
//   54: T63 = cast(T62, bf16)
//   57: T66 = sum(T65, dims=[0, 1])
//   58: T67 = cast(T66, bf16)
// Schedule: 8 columns by 32 partial rows at a time; partial rows are added in a fixed order.
#include "combine.cuh"
#include "overlap.cuh"
#include "reduce_strided.cuh"
#include "types.cuh"

constexpr int kThreads = 256;
constexpr int kColumns = 1024;

extern "C" __global__ void __launch_bounds__(kThreads)
    seed_2146_s1_column_finish(fusec::bf16* __restrict__ T63,
                               fusec::bf16* __restrict__ T67,
                               float* T62_partials,
                               float* T66_partials) {
  fusec::wait_for_kernels_before();
  int block = blockIdx.x;
  // The sums over i0, i1.
  constexpr int kThreadsX = 8;   // columns per block
  constexpr int kThreadsY = 32;  // partial rows at a time
  constexpr int kRanges = 527;   // partial rows of a group
  const int column_of_thread = block * kThreadsX + threadIdx.x % kThreadsX;
  // Columns past the end are clamped, so that every thread participates in the reductions.
  const int column = min(column_of_thread, kColumns - 1);
  float T62_part = fusec::Sum<float>::identity();
  float T66_part = fusec::Sum<float>::identity();
#pragma unroll 8
  for (int range = threadIdx.x / kThreadsX; range < kRanges; range += kThreadsY) {
    const int place = range * kColumns + column;
    T62_part += T62_partials[place];
    T66_part += T66_partials[place];
  }
  const float T62 = fusec::block_reduce_strided<fusec::Sum<float>, kThreadsX, kThreadsY>(T62_part);
  const float T66 = fusec::block_reduce_strided<fusec::Sum<float>, kThreadsX, kThreadsY>(T66_part);
  if (threadIdx.x >= kThreadsX || column_of_thread >= kColumns) return;
  T63[column] = fusec::convert<fusec::bf16>(T62);
  T67[column] = fusec::convert<fusec::bf16>(T66);
}
