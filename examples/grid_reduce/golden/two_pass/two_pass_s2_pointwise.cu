// two_pass_s2_pointwise: The same layer norm in two passes, whose sums the blocks of a row add in
//   turns by reducing bulk copies.
// Source: two_pass.yaml
//   8: mean = mean(x, dims=[1], keepdim=true)
//   9: away = sub(x, mean)
//   11: y = mul(away, rsqrt(add(var, 1e-5)))
// Schedule: rows by vectors of columns, 1 x 256 threads (rows x vectors), 1 rows per thread,
//   accesses of 4 elements.
#include "math.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 4;         // elements per access
constexpr int kThreadsX = 256;  // adjacent vectors of a row
constexpr int kThreadsY = 1;    // rows at a time
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kUnroll = 1;  // rows per thread

extern "C" __global__ void __launch_bounds__(kThreads)
    two_pass_s2_pointwise(const float* __restrict__ x,
                          const float* __restrict__ sum_1,
                          const float* __restrict__ rsqrt_1,
                          float* __restrict__ y,
                          fusec::i64 R) {
  const int rows = R;
  const int columns = 4194304;
  const int column = ((gridDim.y - 1 - blockIdx.y) * kThreadsX + threadIdx.x) * kVec;
  if (column >= columns) return;
  const int first_row = blockIdx.x * (kThreadsY * kUnroll) + threadIdx.y;

#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int row = first_row + u * kThreadsY;
    if (row >= rows) break;
    const auto x_vec = fusec::load_readonly<kVec>(x + row * columns + column);
    const float sum_1_value = sum_1[row];
    const float mean = fusec::divide(sum_1_value, 4194304.0f);
    const float rsqrt_1_value = rsqrt_1[row];
    fusec::Vec<float, kVec> y_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      y_vec[v] = (x_vec[v] - mean) * rsqrt_1_value;
    }
    fusec::store(y + row * columns + column, y_vec);
  }
}
