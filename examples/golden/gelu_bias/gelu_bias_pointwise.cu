// gelu_bias_pointwise: Bias and the exact GELU, between the two matrix products of an MLP.
// Source: examples/gelu_bias.yaml
//   12: z = add(cast(x, f32), cast(bias, f32))
//   15: y = cast(mul(z, cdf), bf16)
// Schedule: rows by vectors of columns, 1 x 256 threads (rows x vectors), 4 rows per thread,
//   accesses of 8 elements.
#include "fast_math.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;         // elements per access
constexpr int kThreadsX = 256;  // vectors of a row side by side
constexpr int kThreadsY = 1;    // rows at a time
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kUnroll = 4;  // rows per thread

extern "C" __global__ void __launch_bounds__(kThreads)
    gelu_bias_pointwise(const fusec::bf16* __restrict__ x,
                        const fusec::bf16* __restrict__ bias,
                        fusec::bf16* __restrict__ y,
                        fusec::i64 T) {
  const int rows = T;
  const int columns = 4096;
  const int column = (blockIdx.y * kThreadsX + threadIdx.x) * kVec;
  if (column >= columns) return;
  const int first_row = blockIdx.x * (kThreadsY * kUnroll) + threadIdx.y;
  const auto bias_vec = fusec::load_readonly<kVec>(bias + column);

  // All loads are on their way before the first is waited for.
  fusec::Vec<fusec::bf16, kVec> x_ahead[kUnroll];

#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int row = first_row + u * kThreadsY;
    if (row >= rows) break;
    x_ahead[u] = fusec::load_readonly<kVec>(x + row * columns + column);
  }

#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int row = first_row + u * kThreadsY;
    if (row >= rows) break;
    fusec::Vec<fusec::bf16, kVec> y_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float z = fusec::to_float(x_ahead[u][v]) + fusec::to_float(bias_vec[v]);
      y_vec[v] = fusec::convert<fusec::bf16>(fusec::gelu_approx(z));
    }
    fusec::store(y + row * columns + column, y_vec);
  }
}
