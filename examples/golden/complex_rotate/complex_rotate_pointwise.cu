// complex_rotate_pointwise: Rotary position embedding with neighbours as complex numbers, turned by
//   products.
// Source: complex_rotate.yaml
//   13: turn = complex(cos(angle), sin(angle))
//   14: y = q * turn
// Schedule: rows by vectors of columns, 1 x 256 threads (rows x vectors), 2 rows per thread, single
//   elements.
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 1;         // elements per access
constexpr int kThreadsX = 256;  // adjacent vectors of a row
constexpr int kThreadsY = 1;    // rows at a time
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kUnroll = 2;  // rows per thread

extern "C" __global__ void __launch_bounds__(kThreads)
    complex_rotate_pointwise(const float* __restrict__ q_re,
                             const float* __restrict__ angle,
                             float* __restrict__ y_re,
                             fusec::i64 B,
                             fusec::i64 NH) {
  const int rows = B * NH;
  const int columns = 65536;
  const int column = (blockIdx.y * kThreadsX + threadIdx.x) * kVec;
  if (column >= columns) return;
  const int first_row = blockIdx.x * (kThreadsY * kUnroll) + threadIdx.y;
  const float angle_value = angle[column];
  const float cos_1 = cosf(angle_value);
  const float sin_1 = sinf(angle_value);

#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int row = first_row + u * kThreadsY;
    if (row >= rows) break;
    const auto q_re_im = fusec::load_readonly<2>(q_re + row * 131072 + column * 2);
    const float q_re_value = q_re_im[0];
    const float q_im = q_re_im[1];
    const float y_re_value = q_re_value * cos_1 - q_im * sin_1;
    const float y_im = q_re_value * sin_1 + q_im * cos_1;
    fusec::store(y_re + row * 131072 + column * 2, fusec::Vec<float, 2>{y_re_value, y_im});
  }
}
