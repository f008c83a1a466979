// tensor_parallel_attention_s3_inner_persistent: Self-attention whose heads are divided over the
//   ranks.
// Source: examples/parallel/tensor_parallel_attention.yaml
//   17: p = softmax(mul(cast(matmul(q, k), f32), 0.125), dim=3)
//   18: o = matmul(cast(p, bf16), v)
// Schedule: 32 threads per row, 4 rows per block, accesses of 8 elements; the row stays in
//   registers.
#include "combine.cuh"
#include "fast_math.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;        // elements per access
constexpr int kThreadsX = 32;  // threads per row
constexpr int kThreadsY = 4;   // rows per block
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kColumns = 1024;  // elements of a row
constexpr int kChunks = 4;      // vectors of a row per thread
static_assert(kChunks * kThreadsX * kVec == kColumns);

extern "C" __global__ void __launch_bounds__(kThreads)
    tensor_parallel_attention_s3_inner_persistent(const fusec::bf16* __restrict__ matmul_1,
                                                  fusec::bf16* __restrict__ cast_2,
                                                  fusec::i64 B,
                                                  fusec::i64 H) {
  const int rows = B * H * 1024;
  // Rows past the end repeat the last one, so that every thread takes part in the reductions.
  const int row_of_thread = blockIdx.x * static_cast<int>(kThreadsY) + threadIdx.y;
  const bool is_row = row_of_thread < rows;
  const int row = is_row ? row_of_thread : rows - 1;
  fusec::Vec<fusec::bf16, kVec> matmul_1_row[kChunks];
  fusec::Vec<float, kVec> exp_1_kept[kChunks];

  // The row stays in registers between the phases.
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    matmul_1_row[c] = fusec::load_readonly<kVec>(matmul_1 + row * kColumns + column);
  }
  float max_1_part = fusec::Max<float>::identity();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float mul_1 = fusec::to_float(matmul_1_row[c][v]) * 0.125f;
      max_1_part = fusec::Max<float>::combine(max_1_part, mul_1);
    }
  }
  const float max_1 = fusec::block_reduce_rows<fusec::Max<float>, kThreadsX, kThreadsY>(max_1_part);

  float sum_1_part = fusec::Sum<float>::identity();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float mul_1 = fusec::to_float(matmul_1_row[c][v]) * 0.125f;
      const float exp_1 = fusec::exp_approx(mul_1 - max_1);
      sum_1_part += exp_1;
      exp_1_kept[c][v] = exp_1;
    }
  }
  const float sum_1 = fusec::block_reduce_rows<fusec::Sum<float>, kThreadsX, kThreadsY>(sum_1_part);

  const float p_reciprocal = 1.0f / sum_1;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    fusec::Vec<fusec::bf16, kVec> cast_2_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      cast_2_vec[v] = fusec::convert<fusec::bf16>(exp_1_kept[c][v] * p_reciprocal);
    }
    if (is_row) {
      fusec::store(cast_2 + row * kColumns + column, cast_2_vec);
    }
  }
}
