// serial_s1_pointwise: Layer norm of rows that many blocks share; in turns they merge their Welford
//   states by loads and stores.
// Source: serial.yaml
//   9: var, mean = var_mean(x, dims=[1], correction=0, keepdim=true)
//   10: y = mul(sub(x, mean), rsqrt(add(var, 1e-5)))
// Schedule: rows by vectors of columns, 1 x 256 threads (rows x vectors), 1 rows per thread,
//   accesses of 4 elements.
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 4;         // elements per access
constexpr int kThreadsX = 256;  // adjacent vectors of a row
constexpr int kThreadsY = 1;    // rows at a time
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kUnroll = 1;  // rows per thread

extern "C" __global__ void __launch_bounds__(kThreads)
    serial_s1_pointwise(const float* __restrict__ x,
                        const float* __restrict__ mean_reduced,
                        const float* __restrict__ var_reduced,
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
    const float mean_reduced_value = mean_reduced[row];
    const float var_reduced_value = var_reduced[row];
    const float rsqrt_1 = rsqrtf(var_reduced_value + 1e-5f);
    fusec::Vec<float, kVec> y_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      y_vec[v] = (x_vec[v] - mean_reduced_value) * rsqrt_1;
    }
    fusec::store(y + row * columns + column, y_vec);
  }
}
