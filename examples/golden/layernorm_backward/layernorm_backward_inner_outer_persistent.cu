// layernorm_backward_inner_outer_persistent: Gradients of layer norm with respect to its input,
//   weight and bias.
// Source: layernorm_backward.yaml
//   16: dyf = cast(dy, f32)
//   17: rstd_col = broadcast(rstd, [false, true])
//   18: xn = (cast(x, f32) - broadcast(mean, [false, true])) * rstd_col
//   20: dxn = dyf * cast(w, f32)
//   21: along_xn = mean(dxn * xn, dims=[1], keepdim=true)
//   22: along_one = mean(dxn, dims=[1], keepdim=true)
//   23: dx = cast((dxn - (xn * along_xn + along_one)) * rstd_col, bf16)
//   25: dw = cast(sum(dyf * xn, dims=[0]), bf16)
//   26: db = cast(sum(dyf, dims=[0]), bf16)
// Schedule: 128 ranges of rows, 256 threads per row, 1 at a time, 2 rows in flight; column sums
//   stay in registers.
#include "async_copy.cuh"
#include "combine.cuh"
#include "math.cuh"
#include "overlap.cuh"
#include "reduce_in_turns.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;         // elements per access
constexpr int kThreadsX = 256;  // threads per row
constexpr int kThreadsY = 1;    // rows at a time
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kBlocks = 2;  // blocks per SM
constexpr int kChunks = 2;  // vectors of a row per thread
constexpr int kColumns = 4096;
constexpr int kDyRing = 0;        // first byte of dy_ring
constexpr int kXRing = 24576;     // first byte of x_ring
constexpr int kGroupRows = 2048;  // rows per group, which share column sums
constexpr int kRangeRows = 16;    // rows per range
constexpr int kStages = 3;        // rows in the ring, all but one in flight

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    layernorm_backward_inner_outer_persistent(const fusec::bf16* __restrict__ dy,
                                              const fusec::bf16* __restrict__ x,
                                              const fusec::bf16* __restrict__ w,
                                              const float* __restrict__ mean,
                                              const float* __restrict__ rstd,
                                              fusec::bf16* __restrict__ dx,
                                              float* sum_4_partials,
                                              float* sum_3_partials) {
  fusec::let_next_kernel_start();  // it waits for this kernel's end
  const int range = blockIdx.x;
  const int first = range * kRangeRows;
  const int end = min(first + kRangeRows, kGroupRows);

  // Values that depend only on the column stay in registers.
  fusec::Vec<float, kVec> cast_2_columns[kChunks];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    const auto w_vec = fusec::load_readonly<kVec>(w + column);
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      cast_2_columns[c][v] = fusec::to_float(w_vec[v]);
    }
  }

  // Column sums of this range of rows; each thread owns its columns.
  fusec::Vec<float, kVec> sum_4_part[kChunks];
  fusec::Vec<float, kVec> sum_3_part[kChunks];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    sum_4_part[c] = fusec::splat<float, kVec>(fusec::Sum<float>::identity());
    sum_3_part[c] = fusec::splat<float, kVec>(fusec::Sum<float>::identity());
  }

  // Prefetched rows: each thread copies, and later reads, only its own columns.
  extern __shared__ __align__(16) char shared_memory[];
  auto* dy_ring = reinterpret_cast<fusec::Vec<fusec::bf16, kVec>*>(shared_memory + kDyRing);
  auto* x_ring = reinterpret_cast<fusec::Vec<fusec::bf16, kVec>*>(shared_memory + kXRing);
  const int thread = threadIdx.x;
  const auto fetch = [&](int row_ahead, int next_slot) {
    if (row_ahead < end) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const int column = (c * kThreadsX + threadIdx.x) * kVec;
        fusec::copy_async_16(&dy_ring[(next_slot * kChunks + c) * kThreads + thread],
                             dy + row_ahead * kColumns + column);
        fusec::copy_async_16(&x_ring[(next_slot * kChunks + c) * kThreads + thread],
                             x + row_ahead * kColumns + column);
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
    fusec::Vec<fusec::bf16, kVec> dy_row[kChunks];
    fusec::Vec<fusec::bf16, kVec> x_row[kChunks];
    const float mean_value = mean[row];
    const float rstd_value = rstd[row];
    fusec::copy_wait<kStages - 2>();
    fetch(row + (kStages - 1) * kThreadsY, slot == 0 ? kStages - 1 : slot - 1);
    float sum_1_part = fusec::Sum<float>::identity();
    float sum_2_part = fusec::Sum<float>::identity();
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      dy_row[c] = dy_ring[(slot * kChunks + c) * kThreads + thread];
      x_row[c] = x_ring[(slot * kChunks + c) * kThreads + thread];
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        const float dyf = fusec::to_float(dy_row[c][v]);
        const float dxn = dyf * cast_2_columns[c][v];
        const float xn = (fusec::to_float(x_row[c][v]) - mean_value) * rstd_value;
        sum_1_part += dxn * xn;
        sum_2_part += dxn;
        sum_3_part[c][v] += dyf * xn;
        sum_4_part[c][v] += dyf;
      }
    }
    const auto row_totals =
        fusec::block_reduce_rows_in_turns<fusec::Sum<float>, kThreadsX, kThreadsY>(
            fusec::Vec<float, 2>{sum_1_part, sum_2_part}, turn);
    const float sum_1 = row_totals[0];
    const float sum_2 = row_totals[1];
    const float along_xn = fusec::divide(sum_1, static_cast<float>(kColumns));
    const float along_one = fusec::divide(sum_2, static_cast<float>(kColumns));
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int column = (c * kThreadsX + threadIdx.x) * kVec;
      fusec::Vec<fusec::bf16, kVec> dx_vec;
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        const float dyf = fusec::to_float(dy_row[c][v]);
        const float dxn = dyf * cast_2_columns[c][v];
        const float xn = (fusec::to_float(x_row[c][v]) - mean_value) * rstd_value;
        dx_vec[v] = fusec::convert<fusec::bf16>((dxn - (xn * along_xn + along_one)) * rstd_value);
      }
      fusec::store(dx + row * kColumns + column, dx_vec);
    }
    slot = slot == kStages - 1 ? 0 : slot + 1;
  }

  // One partial row per range and sum; the finishing kernel adds them up.
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = (c * kThreadsX + threadIdx.x) * kVec;
    fusec::store(sum_4_partials + (range * kColumns + column), sum_4_part[c]);
    fusec::store(sum_3_partials + (range * kColumns + column), sum_3_part[c]);
  }
}
