// linear_silu_backward_s1_reduction: The gradient at a linear layer with bias and SiLU, from that
//   of the layer behind it.
// Source: linear_silu_backward.yaml
//   17: dbias = sum(cast(dz, f32), dims=[0])
// Schedule: 32 vectors of 4 columns by 8 rows at a time.
#include "combine.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 4;        // columns per access
constexpr int kThreadsX = 32;  // adjacent vectors of columns
constexpr int kThreadsY = 8;   // rows at a time
constexpr int kThreads = kThreadsX * kThreadsY;

extern "C" __global__ void __launch_bounds__(kThreads)
    linear_silu_backward_s1_reduction(const float* __restrict__ dbias_segment_set,
                                      float* __restrict__ dbias,
                                      fusec::i64 M) {
  const int rows = (M + 16 - 1) / 16;
  const int columns = 1024;
  const int column_of_thread = (blockIdx.x * static_cast<int>(kThreadsX) + threadIdx.x) * kVec;
  // Columns past the end are clamped, so that every thread participates in the reductions.
  const bool is_column = column_of_thread < columns;
  const int column = is_column ? column_of_thread : columns - kVec;
  auto dbias_part = fusec::splat<float, kVec>(fusec::Sum<float>::identity());
#pragma unroll 4
  for (int row = threadIdx.y; row < rows; row += kThreadsY) {
    const auto dbias_segment_set_vec =
        fusec::load_readonly<kVec>(dbias_segment_set + row * columns + column);
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      dbias_part[v] += dbias_segment_set_vec[v];
    }
  }
  dbias_part = fusec::block_reduce_columns<fusec::Sum<float>, kThreadsX, kThreadsY>(dbias_part);

  if (threadIdx.y == 0 && is_column) {
    auto dbias_value = dbias_part;
    fusec::Vec<float, kVec> dbias_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      dbias_vec[v] = dbias_value[v];
    }
    fusec::store(dbias + column, dbias_vec);
  }
}
