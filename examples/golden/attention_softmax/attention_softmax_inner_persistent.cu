// attention_softmax_inner_persistent: Softmax of scaled attention scores with an additive bias and
//   a mask of keys.
// Source: attention_softmax.yaml
//   15: scaled = cast(scores, f32) * scale + cast(bias, f32)
//   16: keep_all = broadcast(keep, [false, true, true, false])
//   18: s = where(keep_all, scaled, -1e9)
//   19: y = cast(softmax(s, -1), bf16)
// Schedule: 64 threads per row, 2 rows per block, accesses of 16 elements; the row stays in
//   registers.
#include "combine.cuh"
#include "fast_math.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 16;       // elements per access
constexpr int kThreadsX = 64;  // threads per row
constexpr int kThreadsY = 2;   // rows per block
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kColumns = 1024;  // elements of a row
constexpr int kChunks = 1;      // vectors of a row per thread
static_assert(kChunks * kThreadsX * kVec == kColumns);

extern "C" __global__ void __launch_bounds__(kThreads)
    attention_softmax_inner_persistent(const fusec::bf16* __restrict__ scores,
                                       const fusec::bf16* __restrict__ bias,
                                       const bool* __restrict__ keep,
                                       fusec::bf16* __restrict__ y,
                                       float scale,
                                       fusec::i64 B,
                                       fusec::i64 NH,
                                       fusec::i64 Q) {
  const int rows = B * NH * Q;
  // Rows past the end are clamped, so that every thread participates in the reductions.
  const int row_of_thread = blockIdx.x * static_cast<int>(kThreadsY) + threadIdx.y;
  const bool is_row = row_of_thread < rows;
  const int row = is_row ? row_of_thread : rows - 1;
  fusec::Vec<fusec::bf16, kVec> bias_row[kChunks];
  fusec::Vec<bool, kVec> keep_row[kChunks];
  fusec::Vec<fusec::bf16, kVec> scores_row[kChunks];
  fusec::Vec<float, kVec> exp_1_kept[kChunks];

  const int row_mod_size = row % static_cast<int>(NH * Q);
  const int row_over_size = row / static_cast<int>(NH * Q);
  // The row stays in registers between the phases.
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    bias_row[c] = fusec::load_readonly<kVec>(bias + row_mod_size * kColumns + column);
    keep_row[c] = fusec::load_readonly<kVec>(keep + row_over_size * kColumns + column);
    scores_row[c] = fusec::load_readonly<kVec>(scores + row * kColumns + column);
  }
  float max_1_part = fusec::Max<float>::identity();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float scaled =
          fusec::to_float(scores_row[c][v]) * scale + fusec::to_float(bias_row[c][v]);
      const float s_value = keep_row[c][v] ? scaled : -1000000000.0f;
      max_1_part = fusec::Max<float>::combine(max_1_part, s_value);
    }
  }
  const float max_1 = fusec::block_reduce_rows<fusec::Max<float>, kThreadsX, kThreadsY>(max_1_part);

  float sum_1_part = fusec::Sum<float>::identity();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float scaled =
          fusec::to_float(scores_row[c][v]) * scale + fusec::to_float(bias_row[c][v]);
      const float s_value = keep_row[c][v] ? scaled : -1000000000.0f;
      const float exp_1 = fusec::exp_approx(s_value - max_1);
      sum_1_part += exp_1;
      exp_1_kept[c][v] = exp_1;
    }
  }
  const float sum_1 = fusec::block_reduce_rows<fusec::Sum<float>, kThreadsX, kThreadsY>(sum_1_part);

  const float div_1_reciprocal = 1.0f / sum_1;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    fusec::Vec<fusec::bf16, kVec> y_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      y_vec[v] = fusec::convert<fusec::bf16>(exp_1_kept[c][v] * div_1_reciprocal);
    }
    if (is_row) {
      fusec::store(y + row * kColumns + column, y_vec);
    }
  }
}
