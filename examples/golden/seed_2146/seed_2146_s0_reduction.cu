// seed_2146_s0_reduction: Backward pass of a modulated layer norm, from an nvFuser script.
// Source: seed_2146.yaml
//   23: T7 = cast(T6, f32)
//   25: T17 = broadcast_in_dim(T12, shape=[56, 1024, 1024], broadcast_dims=[0, 1, 2])
//   26: T18 = sub(T7, T17)
//   27: T23 = broadcast_in_dim(T5, shape=[56, 1024, 1024], broadcast_dims=[0, 1, 2])
//   28: T24 = mul(T18, T23)
//   29: T25 = cast(T0, f32)
//   30: T26 = mul(T24, T25)
//   31: T27 = cast(T1, f32)
//   32: T28 = add(T26, T27)
//   38: T39 = cast(T3, f32)
//   39: T40 = sum(T39, dims=[1])
//   40: T41 = cast(T40, bf16)
//   41: T46 = broadcast_in_dim(T41, shape=[56, 1, 1024], broadcast_dims=[0, 2])
//   42: T47 = cast(T46, f32)
//   43: T48 = sum(T47, dims=[1])
//   44: T49 = cast(T48, bf16)
//   ... and 7 more lines
// Schedule: 32 vectors of 8 columns by 8 rows at a time; 7 blocks share a result, the last one
//   combines.
#include "combine.cuh"
#include "grid.cuh"
#include "reduce.cuh"
#include "rounding.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;        // columns per access
constexpr int kThreadsX = 32;  // adjacent vectors of columns
constexpr int kThreadsY = 8;   // rows at a time
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kSplits = 7;  // blocks that share a column

extern "C" __global__ void __launch_bounds__(kThreads)
    seed_2146_s0_reduction(const fusec::bf16* __restrict__ T0,
                           const fusec::bf16* __restrict__ T1,
                           const fusec::bf16* __restrict__ T3,
                           const float* __restrict__ T4,
                           const float* __restrict__ T5,
                           const fusec::bf16* __restrict__ T6,
                           fusec::bf16* __restrict__ T49,
                           fusec::bf16* __restrict__ T61,
                           float* T40_partials,
                           float* T52_partials,
                           fusec::u32* arrived) {
  const int rows = 1024;
  const int columns = 57344;
  const int column_of_thread = (blockIdx.x * static_cast<int>(kThreadsX) + threadIdx.x) * kVec;
  // Columns past the end are clamped, so that every thread participates in the reductions.
  const bool is_column = column_of_thread < columns;
  const int column = is_column ? column_of_thread : columns - kVec;
  const int part_over_128 = column / kVec / 128;
  const int part_mod_128 = column / kVec % 128;
  auto T40_part = fusec::splat<float, kVec>(fusec::Sum<float>::identity());
  auto T52_part = fusec::splat<float, kVec>(fusec::Sum<float>::identity());
#pragma unroll 4
  for (int row = blockIdx.y * kThreadsY + threadIdx.y; row < rows; row += kSplits * kThreadsY) {
    const auto T3_vec =
        fusec::load_readonly<kVec>(T3 + part_over_128 * 1048576 + row * 1024 + part_mod_128 * kVec);
    const auto T6_vec =
        fusec::load_readonly<kVec>(T6 + part_over_128 * 1048576 + row * 1024 + part_mod_128 * kVec);
    const float T4_value = T4[part_over_128 * 1024 + row];
    const float T5_value = T5[part_over_128 * 1024 + row];
    const auto T0_vec = fusec::load_readonly<kVec>(T0 + part_mod_128 * kVec);
    const auto T1_vec = fusec::load_readonly<kVec>(T1 + part_mod_128 * kVec);
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float T39 = fusec::to_float(T3_vec[v]);
      T40_part[v] += T39;
      const float T26 =
          (fusec::to_float(T6_vec[v]) - T4_value) * T5_value * fusec::to_float(T0_vec[v]);
      T52_part[v] += (T26 + fusec::to_float(T1_vec[v])) * T39;
    }
  }
  T40_part = fusec::block_reduce_columns<fusec::Sum<float>, kThreadsX, kThreadsY>(T40_part);
  T52_part = fusec::block_reduce_columns<fusec::Sum<float>, kThreadsX, kThreadsY>(T52_part);

  const int width = gridDim.x * static_cast<int>(kThreadsX);
  auto* T40_parts = reinterpret_cast<fusec::Vec<float, kVec>*>(T40_partials) +
                    blockIdx.x * kThreadsX + threadIdx.x;
  auto* T52_parts = reinterpret_cast<fusec::Vec<float, kVec>*>(T52_partials) +
                    blockIdx.x * kThreadsX + threadIdx.x;
  // Each block stores its partial results; the last one to arrive combines them in order.
  if (threadIdx.y == 0) {
    T40_parts[blockIdx.y * width] = T40_part;
    T52_parts[blockIdx.y * width] = T52_part;
  }
  if (!fusec::last_block(arrived + blockIdx.x, kSplits)) return;
  T40_part = fusec::splat<float, kVec>(fusec::Sum<float>::identity());
  for (int split = threadIdx.y; split < kSplits; split += kThreadsY) {
    T40_part = fusec::combine_each<fusec::Sum<float>>(T40_part, T40_parts[split * width]);
  }
  T40_part = fusec::block_reduce_columns<fusec::Sum<float>, kThreadsX, kThreadsY>(T40_part);
  T52_part = fusec::splat<float, kVec>(fusec::Sum<float>::identity());
  for (int split = threadIdx.y; split < kSplits; split += kThreadsY) {
    T52_part = fusec::combine_each<fusec::Sum<float>>(T52_part, T52_parts[split * width]);
  }
  T52_part = fusec::block_reduce_columns<fusec::Sum<float>, kThreadsX, kThreadsY>(T52_part);

  if (threadIdx.y == 0 && is_column) {
    auto T40 = T40_part;
    auto T52 = T52_part;
    fusec::Vec<fusec::bf16, kVec> T49_vec;
    fusec::Vec<fusec::bf16, kVec> T61_vec;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      T49_vec[v] = fusec::convert<fusec::bf16>(fusec::round_to<fusec::bf16>(T40[v]));
      T61_vec[v] = fusec::convert<fusec::bf16>(fusec::round_to<fusec::bf16>(T52[v]));
    }
    fusec::store(T49 + column, T49_vec);
    fusec::store(T61 + column, T61_vec);
  }
}
