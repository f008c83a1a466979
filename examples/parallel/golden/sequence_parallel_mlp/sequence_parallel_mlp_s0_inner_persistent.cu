// sequence_parallel_mlp_s0_inner_persistent: An MLP, its norm and its residual, between tokens that
//   are divided over the ranks.
// Source: sequence_parallel_mlp.yaml
//   13: f = cast(x, f32)
//   14: v = mean(f * f, dims=[1], keepdim=true)
//   15: n = f * rsqrt(v + 1e-5) * scale
//   16: a = cast(n, bf16)
// Schedule: 128 threads per row, 1 rows per block, accesses of 8 elements; the row stays in
//   registers.
#include "combine.cuh"
#include "math.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;         // elements per access
constexpr int kThreadsX = 128;  // threads per row
constexpr int kThreadsY = 1;    // rows per block
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kColumns = 8192;  // elements of a row
constexpr int kChunks = 8;      // vectors of a row per thread
static_assert(kChunks * kThreadsX * kVec == kColumns);

extern "C" __global__ void __launch_bounds__(kThreads)
    sequence_parallel_mlp_s0_inner_persistent(const fusec::bf16* __restrict__ x,
                                              const fusec::bf16* __restrict__ scale,
                                              fusec::bf16* __restrict__ a) {
  const int row = blockIdx.x;
  fusec::Vec<fusec::bf16, kVec> x_row[kChunks];

  // The row stays in registers between the phases.
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    x_row[c] = fusec::load_readonly<kVec>(x + row * kColumns + column);
  }
  float sum_1_part = fusec::Sum<float>::identity();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float f = fusec::to_float(x_row[c][v]);
      sum_1_part += f * f;
    }
  }
  const float sum_1 = fusec::block_reduce_rows<fusec::Sum<float>, kThreadsX, kThreadsY>(sum_1_part);

  const float add_1 = fusec::divide(sum_1, static_cast<float>(kColumns)) + 1e-5f;
  const float rsqrt_1 = rsqrtf(add_1);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    const auto scale_vec = fusec::load_readonly<kVec>(scale + column);
    fusec::Vec<fusec::bf16, kVec> a_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float f = fusec::to_float(x_row[c][v]);
      a_vec[v] = fusec::convert<fusec::bf16>(f * rsqrt_1 * fusec::to_float(scale_vec[v]));
    }
    fusec::store(a + row * kColumns + column, a_vec);
  }
}
