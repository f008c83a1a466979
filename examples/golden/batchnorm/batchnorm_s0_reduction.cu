// batchnorm_s0_reduction: Batch norm over N, H and W of an NCHW tensor, with the statistics of the batch.
// Source: examples/batchnorm.yaml
//   xf = cast(x, dtype=f32)
//   var, mean = var_mean(xf, dims=[0, 2, 3], correction=0)
// Schedule: 512 threads along each row, 1 rows per block, accesses of 8 elements; 5 blocks share a result, the last one combines.
#include "grid.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"
#include "welford.cuh"

constexpr int kVec = 8;  // elements per access
constexpr int kThreadsX = 512;  // threads per row
constexpr int kThreadsY = 1;  // rows per block
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kSplits = 5;  // blocks that share a row

extern "C" __global__ void __launch_bounds__(kThreads) batchnorm_s0_reduction(
    const fusec::f16* __restrict__ x,
    float* __restrict__ var,
    float* __restrict__ mean,
    float* var_partials,
    fusec::u32* arrived) {
  const int rows = 64;
  const int columns = 100352;
  // Rows past the end repeat the last one, so that every thread takes part in the reductions.
  const int row_of_thread = blockIdx.x * static_cast<int>(kThreadsY) + threadIdx.y;
  const bool is_row = row_of_thread < rows;
  const int row = is_row ? row_of_thread : rows - 1;
  fusec::Welford<float> var_part = fusec::WelfordMerge<float>::identity();
  constexpr int kStep = kSplits * kThreadsX * kVec;
  for (int column = (blockIdx.y * kThreadsX + threadIdx.x) * kVec; column < columns; column += kStep) {
    const int part_over_392 = column / 8 / 392;
    const int part_mod_392 = column / 8 % 392;
    const auto x_vec = fusec::load_readonly<kVec>(x + part_over_392 * 200704 + row * 3136 + part_mod_392 * 8);
    float var_values[kVec];
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      var_values[v] = fusec::to_float(x_vec[v]);
    }
    if (is_row) {
      var_part.push(var_values);
    }
  }
  var_part = fusec::block_reduce_rows<fusec::WelfordMerge<float>, kThreadsX, kThreadsY>(var_part);

  // Each block leaves its part; the last one to arrive combines them in their order.
  auto* var_value_parts = reinterpret_cast<fusec::Welford<float>*>(var_partials);
  if (threadIdx.x == 0 && is_row) {
    var_value_parts[row * kSplits + blockIdx.y] = var_part;
  }
  if (!fusec::last_block(arrived + blockIdx.x, kSplits)) return;
  var_part = fusec::WelfordMerge<float>::identity();
  for (int split = threadIdx.x; split < kSplits; split += kThreadsX) {
    var_part = fusec::WelfordMerge<float>::combine(var_part, var_value_parts[row * kSplits + split]);
  }
  var_part = fusec::block_reduce_rows<fusec::WelfordMerge<float>, kThreadsX, kThreadsY>(var_part);

  if (threadIdx.x == 0 && is_row) {
    const fusec::Welford<float> var_value = var_part;
    var[row] = var_value.variance(0.0f);
    mean[row] = var_value.mean;
  }
}
