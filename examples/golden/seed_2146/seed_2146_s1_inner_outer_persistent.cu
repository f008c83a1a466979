// seed_2146_s1_inner_outer_persistent: Backward pass of a modulated layer norm, from an nvFuser
//   script.
// Source: seed_2146.yaml
//   23: T7 = cast(T6, f32)
//   25: T17 = broadcast_in_dim(T12, shape=[56, 1024, 1024], broadcast_dims=[0, 1, 2])
//   26: T18 = sub(T7, T17)
//   27: T23 = broadcast_in_dim(T5, shape=[56, 1024, 1024], broadcast_dims=[0, 1, 2])
//   28: T24 = mul(T18, T23)
//   29: T25 = cast(T0, f32)
//   33: T29 = cast(T2, f32)
//   34: T31 = add(1.0, T29)
//   35: T32 = cast(T31, bf16)
//   36: T37 = broadcast_in_dim(T32, shape=[56, 1024, 1024], broadcast_dims=[0, 1, 2])
//   37: T38 = cast(T37, f32)
//   38: T39 = cast(T3, f32)
//   45: T50 = mul(T38, T39)
//   53: T62 = sum(T50, dims=[0, 1])
//   54: T63 = cast(T62, bf16)
//   55: T64 = mul(T25, T50)
//   ... and 24 more lines
// Schedule: 527 ranges of rows, 64 threads per row, 1 at a time, 1 rows in flight; column sums stay
//   in registers.
#include "async_copy.cuh"
#include "combine.cuh"
#include "math.cuh"
#include "overlap.cuh"
#include "reduce_in_turns.cuh"
#include "rounding.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;        // elements per access
constexpr int kThreadsX = 64;  // threads per row
constexpr int kThreadsY = 1;   // rows at a time
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kBlocks = 8;  // blocks per SM
constexpr int kChunks = 2;  // vectors of a row per thread
constexpr int kColumns = 1024;
constexpr int kT2Ring = 0;         // first byte of T2_ring
constexpr int kT3Ring = 4096;      // first byte of T3_ring
constexpr int kT6Ring = 8192;      // first byte of T6_ring
constexpr int kGroupRows = 57344;  // rows per group, which share column sums
constexpr int kRangeRows = 109;    // rows per range
constexpr int kStages = 2;         // rows in the ring, all but one in flight

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    seed_2146_s1_inner_outer_persistent(const fusec::bf16* __restrict__ T0,
                                        const fusec::bf16* __restrict__ T2,
                                        const fusec::bf16* __restrict__ T3,
                                        const float* __restrict__ T4,
                                        const float* __restrict__ T5,
                                        const fusec::bf16* __restrict__ T6,
                                        fusec::bf16* __restrict__ T131,
                                        float* T66_partials,
                                        float* T62_partials) {
  fusec::let_next_kernel_start();  // it waits for this kernel's end
  const int range = blockIdx.x;
  const int first = range * kRangeRows;
  const int end = min(first + kRangeRows, kGroupRows);

  // Values that depend only on the column stay in registers.
  fusec::Vec<float, kVec> T25_columns[kChunks];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    const auto T0_vec = fusec::load_readonly<kVec>(T0 + column);
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      T25_columns[c][v] = fusec::to_float(T0_vec[v]);
    }
  }

  // Column sums of this range of rows; each thread owns its columns.
  fusec::Vec<float, kVec> T66_part[kChunks];
  fusec::Vec<float, kVec> T62_part[kChunks];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    T66_part[c] = fusec::splat<float, kVec>(fusec::Sum<float>::identity());
    T62_part[c] = fusec::splat<float, kVec>(fusec::Sum<float>::identity());
  }

  // Prefetched rows: each thread copies, and later reads, only its own columns.
  extern __shared__ __align__(16) char shared_memory[];
  auto* T2_ring = reinterpret_cast<fusec::Vec<fusec::bf16, kVec>*>(shared_memory + kT2Ring);
  auto* T3_ring = reinterpret_cast<fusec::Vec<fusec::bf16, kVec>*>(shared_memory + kT3Ring);
  auto* T6_ring = reinterpret_cast<fusec::Vec<fusec::bf16, kVec>*>(shared_memory + kT6Ring);
  const int thread = threadIdx.x;
  const auto fetch = [&](int row_ahead, int next_slot) {
    if (row_ahead < end) {
      const int row_ahead_over_1024 = row_ahead / 1024;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const int column = (c * kThreadsX + threadIdx.x) * kVec;
        fusec::copy_async_16(&T2_ring[(next_slot * kChunks + c) * kThreads + thread],
                             T2 + row_ahead_over_1024 * kColumns + column);
        fusec::copy_async_16(&T3_ring[(next_slot * kChunks + c) * kThreads + thread],
                             T3 + row_ahead * kColumns + column);
        fusec::copy_async_16(&T6_ring[(next_slot * kChunks + c) * kThreads + thread],
                             T6 + row_ahead * kColumns + column);
      }
    }
    fusec::copy_commit();
  };
#pragma unroll
  for (int slot = 0; slot < kStages - 1; ++slot) {
    fetch(first + slot, slot);
  }
  int slot = 0;
  int turn = 0;

  for (int row = first; row < end; row += kThreadsY) {
    fusec::Vec<fusec::bf16, kVec> T2_row[kChunks];
    fusec::Vec<fusec::bf16, kVec> T3_row[kChunks];
    fusec::Vec<fusec::bf16, kVec> T6_row[kChunks];
    const float T5_value = T5[row];
    const float T4_value = T4[row];
    fusec::copy_wait<kStages - 2>();
    fetch(row + (kStages - 1) * kThreadsY, slot == 0 ? kStages - 1 : slot - 1);
    float T77_part = fusec::Sum<float>::identity();
    float T70_part = fusec::Sum<float>::identity();
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      T2_row[c] = T2_ring[(slot * kChunks + c) * kThreads + thread];
      T3_row[c] = T3_ring[(slot * kChunks + c) * kThreads + thread];
      T6_row[c] = T6_ring[(slot * kChunks + c) * kThreads + thread];
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        const float T32 = fusec::round_to<fusec::bf16>(1.0f + fusec::to_float(T2_row[c][v]));
        const float T50 = T32 * fusec::to_float(T3_row[c][v]);
        const float T64 = T25_columns[c][v] * T50;
        const float T68 = T5_value * T64;
        T77_part += -T68;
        const float T7 = fusec::to_float(T6_row[c][v]);
        const float T18 = T7 - T4_value;
        T70_part += T18 * T64;
        T62_part[c][v] += T50;
        T66_part[c][v] += T18 * T5_value * T50;
      }
    }
    const auto row_totals =
        fusec::block_reduce_rows_in_turns<fusec::Sum<float>, kThreadsX, kThreadsY>(
            fusec::Vec<float, 2>{T77_part, T70_part}, turn);
    const float T77 = row_totals[0];
    const float T70 = row_totals[1];
    const float T101 = 0.000976562f * T77;
    const float T123 = 2.0f * (-0.5f * T70 * fusec::pow(T5_value, 3.0f));
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int column = (c * kThreadsX + threadIdx.x) * kVec;
      fusec::Vec<fusec::bf16, kVec> T131_vec;
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        const float T32 = fusec::round_to<fusec::bf16>(1.0f + fusec::to_float(T2_row[c][v]));
        const float T50 = T32 * fusec::to_float(T3_row[c][v]);
        const float T64 = T25_columns[c][v] * T50;
        const float T68 = T5_value * T64;
        const float T7 = fusec::to_float(T6_row[c][v]);
        const float T130 = T68 + (T101 + T123 * (T7 - T4_value) * (1.0f / kColumns));
        T131_vec[v] = fusec::convert<fusec::bf16>(T130);
      }
      fusec::store(T131 + row * kColumns + column, T131_vec);
    }
    slot = slot == kStages - 1 ? 0 : slot + 1;
  }

  // One partial row per range and sum; the finishing kernel adds them up.
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    fusec::store(T66_partials + (range * kColumns + column), T66_part[c]);
    fusec::store(T62_partials + (range * kColumns + column), T62_part[c]);
  }
}
