// tree_reduction: Statistics of long columns; the last of 16 blocks merges their Welford states,
//   then the last of those the rest.
// Source: tree.yaml
//   8: var, mean = var_mean(x, dims=[0], correction=0, keepdim=false)
// Schedule: 32 vectors of 2 columns by 8 rows at a time; 132 blocks share a result, the last of 16
//   combines theirs.
#include "grid.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"
#include "welford.cuh"

constexpr int kVec = 2;        // columns per access
constexpr int kThreadsX = 32;  // adjacent vectors of columns
constexpr int kThreadsY = 8;   // rows at a time
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kSplits = 132;  // blocks that share a column
constexpr int kFan = 16;      // blocks whose partial results one of them combines

extern "C" __global__ void __launch_bounds__(kThreads, 8)
    tree_reduction(const float* __restrict__ x,
                   float* __restrict__ var,
                   float* __restrict__ mean,
                   float* var_partials,
                   fusec::u32* arrived,
                   fusec::i64 R) {
  const int rows = R;
  const int columns = 1024;
  const int column_of_thread = (blockIdx.x * static_cast<int>(kThreadsX) + threadIdx.x) * kVec;
  // Columns past the end are clamped, so that every thread participates in the reductions.
  const bool is_column = column_of_thread < columns;
  const int column = is_column ? column_of_thread : columns - kVec;
  auto var_part = fusec::splat<fusec::Welford<float>, kVec>(fusec::WelfordMerge<float>::identity());
#pragma unroll 4
  for (int row = blockIdx.y * kThreadsY + threadIdx.y; row < rows; row += kSplits * kThreadsY) {
    const auto x_vec = fusec::load_readonly<kVec>(x + row * columns + column);
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      var_part[v].push(x_vec[v]);
    }
  }
  var_part =
      fusec::block_reduce_columns<fusec::WelfordMerge<float>, kThreadsX, kThreadsY>(var_part);

  const int width = gridDim.x * static_cast<int>(kThreadsX);
  auto* var_value_parts = reinterpret_cast<fusec::Vec<fusec::Welford<float>, kVec>*>(var_partials) +
                          blockIdx.x * kThreadsX + threadIdx.x;
  // The last of kFan blocks to arrive combines their partial results in order and stores the result
  // in place of the first one; at the next level, the last of these blocks combines these results.
#pragma unroll 1
  for (int step = 1; step < kSplits; step *= kFan) {
    const int first = blockIdx.y / (kFan * step) * (kFan * step);
    const int end = min(first + kFan * step, kSplits);
    if (threadIdx.y == 0) {
      var_value_parts[blockIdx.y / step * step * width] = var_part;
    }
    fusec::u32* counter = arrived + (first + (step > 1)) * gridDim.x + blockIdx.x;
    if (!fusec::last_block(counter, (end - first + step - 1) / step)) return;
    var_part = fusec::splat<fusec::Welford<float>, kVec>(fusec::WelfordMerge<float>::identity());
    for (int split = first + threadIdx.y * step; split < end; split += kThreadsY * step) {
      var_part =
          fusec::combine_each<fusec::WelfordMerge<float>>(var_part, var_value_parts[split * width]);
    }
    var_part =
        fusec::block_reduce_columns<fusec::WelfordMerge<float>, kThreadsX, kThreadsY>(var_part);
  }

  if (threadIdx.y == 0 && is_column) {
    auto var_value = var_part;
    fusec::Vec<float, kVec> var_vec;
    fusec::Vec<float, kVec> mean_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      var_vec[v] = var_value[v].variance(0.0f);
      mean_vec[v] = var_value[v].mean;
    }
    fusec::store(var + column, var_vec);
    fusec::store(mean + column, mean_vec);
  }
}
