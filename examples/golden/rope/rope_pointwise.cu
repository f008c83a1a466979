// rope_pointwise: Rotary position embedding of queries, halves rotated as in LLaMA.
// Source: examples/rope.yaml
//   qf = cast(q, dtype=f32)
//   cast_1 = cast(cos, dtype=f32)
//   cast_1_broadcast = broadcast_in_dim(cast_1, shape=[B, 16, 1024, 128], broadcast_dims=[2, 3])
//   mul_1 = mul(qf, cast_1_broadcast)
//   q2 = slice(qf, start_indices=[0, 0, 0, 64], end_indices=[B, 16, 1024, 128], strides=[1, 1, 1, 1], manual_normalization=false)
//   neg_1 = neg(q2)
//   q1 = slice(qf, start_indices=[0, 0, 0, 0], end_indices=[B, 16, 1024, 64], strides=[1, 1, 1, 1], manual_normalization=false)
//   rotated = cat(neg_1, q1, dim=3)
//   cast_2 = cast(sin, dtype=f32)
//   cast_2_broadcast = broadcast_in_dim(cast_2, shape=[B, 16, 1024, 128], broadcast_dims=[2, 3])
//   mul_2 = mul(rotated, cast_2_broadcast)
//   add_1 = add(mul_1, mul_2)
//   y = cast(add_1, dtype=bf16)
// Schedule: rows by vectors of columns, 1 x 256 threads (rows x vectors), 1 rows per thread, accesses of 8 elements.
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;  // elements per access
constexpr int kThreadsX = 256;  // vectors of a row side by side
constexpr int kThreadsY = 1;  // rows at a time
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kUnroll = 1;  // rows per thread

extern "C" __global__ void __launch_bounds__(kThreads) rope_pointwise(
    const fusec::bf16* __restrict__ q,
    const fusec::bf16* __restrict__ cos,
    const fusec::bf16* __restrict__ sin,
    fusec::bf16* __restrict__ y,
    fusec::i64 B) {
  const int rows = B * 16;
  const int column = (blockIdx.y * kThreadsX + threadIdx.x) * kVec;
  if (column >= 131072) return;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int row = (blockIdx.x * kUnroll + u) * static_cast<int>(kThreadsY) + threadIdx.y;
    if (row >= rows) break;
    const auto q_vec = fusec::load_readonly<kVec>(q + row * 131072 + column);
    const auto cos_vec = fusec::load_readonly<kVec>(cos + column);
    const int part_mod_16 = column / 8 % 16;
    const auto q_vec2 = part_mod_16 * 8 >= 64 ? fusec::load_readonly<kVec>(q + row * 131072 + column - 64) : fusec::Vec<fusec::bf16, kVec>{};
    const auto q_vec3 = part_mod_16 * 8 < 64 ? fusec::load_readonly<kVec>(q + row * 131072 + column + 64) : fusec::Vec<fusec::bf16, kVec>{};
    const auto sin_vec = fusec::load_readonly<kVec>(sin + column);
    fusec::Vec<fusec::bf16, kVec> y_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float rotated = part_mod_16 * 8 + v < 64 ? -fusec::to_float(q_vec3[v]) : fusec::to_float(q_vec2[v]);
      const float add_1 = fusec::to_float(q_vec[v]) * fusec::to_float(cos_vec[v]) + rotated * fusec::to_float(sin_vec[v]);
      y_vec[v] = fusec::convert<fusec::bf16>(add_1);
    }
    fusec::store(y + row * 131072 + column, y_vec);
  }
}
