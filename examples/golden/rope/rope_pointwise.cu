// rope_pointwise: Rotary position embedding of queries, halves rotated as in LLaMA.
// Source: rope.yaml
//   15: qf = cast(q, f32)
//   16: q1 = slice(qf, start_indices=[0, 0, 0, 0], end_indices=[B, NH, S, D2])
//   17: q2 = slice(qf, start_indices=[0, 0, 0, D2], end_indices=[B, NH, S, D])
//   18: rotated = cat([-q2, q1], dim=3)
//   19: y = cast(qf * cast(cos, f32) + rotated * cast(sin, f32), bf16)
// Schedule: rows by vectors of columns, 1 x 256 threads (rows x vectors), 4 rows per thread,
//   accesses of 8 elements.
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;         // elements per access
constexpr int kThreadsX = 256;  // adjacent vectors of a row
constexpr int kThreadsY = 1;    // rows at a time
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kUnroll = 4;  // rows per thread

extern "C" __global__ void __launch_bounds__(kThreads)
    rope_pointwise(const fusec::bf16* __restrict__ q,
                   const fusec::bf16* __restrict__ cos,
                   const fusec::bf16* __restrict__ sin,
                   fusec::bf16* __restrict__ y,
                   fusec::i64 B,
                   fusec::i64 NH) {
  const int rows = B * NH;
  const int columns = 131072;
  const int column = (blockIdx.y * kThreadsX + threadIdx.x) * kVec;
  if (column >= columns) return;
  const int first_row = blockIdx.x * (kThreadsY * kUnroll) + threadIdx.y;
  const int part_mod_16 = column / kVec % 16;
  const auto cos_vec = fusec::load_readonly<kVec>(cos + column);
  const auto sin_vec = fusec::load_readonly<kVec>(sin + column);

  // All loads are issued before the first one is waited for.
  fusec::Vec<fusec::bf16, kVec> q_ahead[kUnroll];
  fusec::Vec<fusec::bf16, kVec> q_ahead2[kUnroll];

#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int row = first_row + u * kThreadsY;
    if (row >= rows) break;
    const int q_half = part_mod_16 * kVec >= 64 ? -64 : 64;
    q_ahead[u] = fusec::load_readonly<kVec>(q + row * columns + column);
    q_ahead2[u] = fusec::load_readonly<kVec>(q + row * columns + column + q_half);
  }

#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int row = first_row + u * kThreadsY;
    if (row >= rows) break;
    fusec::Vec<fusec::bf16, kVec> y_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float mul_1 = fusec::to_float(q_ahead[u][v]) * fusec::to_float(cos_vec[v]);
      const float rotated = part_mod_16 * kVec + v < 64 ? -fusec::to_float(q_ahead2[u][v])
                                                        : fusec::to_float(q_ahead2[u][v]);
      y_vec[v] = fusec::convert<fusec::bf16>(mul_1 + rotated * fusec::to_float(sin_vec[v]));
    }
    fusec::store(y + row * columns + column, y_vec);
  }
}
