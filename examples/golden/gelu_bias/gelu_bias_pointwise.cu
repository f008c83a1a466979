// gelu_bias_pointwise: Bias and the exact GELU, between the two matrix products of an MLP.
// Source: examples/gelu_bias.yaml
//   12: z = add(cast(x, f32), cast(bias, f32))
//   15: y = cast(mul(z, cdf), bf16)
// Schedule: rows by vectors of columns, 1 x 256 threads (rows x vectors), 1 rows per thread,
//   accesses of 8 elements.
#include "fast_math.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;         // elements per access
constexpr int kThreadsX = 256;  // vectors of a row side by side
constexpr int kThreadsY = 1;    // rows at a time
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kUnroll = 1;  // rows per thread

extern "C" __global__ void __launch_bounds__(kThreads)
    gelu_bias_pointwise(const fusec::bf16* __restrict__ x,
                        const fusec::bf16* __restrict__ bias,
                        fusec::bf16* __restrict__ y,
                        fusec::i64 T) {
  const int rows = T;
  const int columns = 4096;
  const int column = (blockIdx.y * kThreadsX + threadIdx.x) * kVec;
  if (column >= columns) return;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int row = (blockIdx.x * kUnroll + u) * static_cast<int>(kThreadsY) + threadIdx.y;
    if (row >= rows) break;
    const auto x_vec = fusec::load_readonly<kVec>(x + row * columns + column);
    const auto bias_vec = fusec::load_readonly<kVec>(bias + column);
    fusec::Vec<fusec::bf16, kVec> y_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float z = fusec::to_float(x_vec[v]) + fusec::to_float(bias_vec[v]);
      y_vec[v] = fusec::convert<fusec::bf16>(fusec::gelu_approx(z));
    }
    fusec::store(y + row * columns + column, y_vec);
  }
}
