// allreduce_residual_rmsnorm_s2_inner_persistent_pushed: The sum over the ranks, the residual, and
//   the norm of a row.
// Source: allreduce_residual_rmsnorm.yaml
//   13: r = total + residual
//   14: f = cast(r, f32)
//   15: v = mean(f * f, dims=[1], keepdim=true)
//   16: y = cast(f * rsqrt(v + 1e-5) * weight, bf16)
// Schedule: 256 threads per row, accesses of 8 elements; rows are added over ranks as they arrive
//   by bulk copies, and stay in registers.
#include "combine.cuh"
#include "math.cuh"
#include "push_rows_in_bulk.cuh"
#include "push_sum.cuh"
#include "reduce.cuh"
#include "rounding.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;         // elements per access
constexpr int kThreadsX = 256;  // threads per row
constexpr int kThreadsY = 1;    // rows per block
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kColumns = 8192;  // elements of a row
constexpr int kChunks = 4;      // vectors of a row per thread
static_assert(kChunks * kThreadsX * kVec == kColumns);

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    allreduce_residual_rmsnorm_s2_inner_persistent_pushed(
        const fusec::bf16* __restrict__ total_partial,
        const fusec::bf16* __restrict__ residual,
        const fusec::bf16* __restrict__ weight,
        fusec::bf16* __restrict__ r_,
        fusec::bf16* __restrict__ y,
        const __grid_constant__ fusec::PushSum mailboxes) {
  __shared__ fusec::StagedRows<fusec::bf16, kColumns> rows;
  const fusec::PushedRowsInBulk<fusec::bf16, kColumns> sums(total_partial, mailboxes, blockIdx.x,
                                                            gridDim.x, rows);
  const fusec::bf16* const total_ = sums.totals();
  for (int turn = 0; turn < sums.turns; ++turn) {
    const int row = sums.row(turn);
    fusec::Vec<fusec::bf16, kVec> residual_row[kChunks];
    fusec::Vec<fusec::bf16, kVec> total_row[kChunks];

    // What is there already is loaded before the row of the sum has come.
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int column = (c * kThreadsX + threadIdx.x) * kVec;
      residual_row[c] = fusec::load_readonly<kVec>(residual + row * kColumns + column);
    }
    sums.bring(turn);
    // The row stays in registers between the phases.
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int column = (c * kThreadsX + threadIdx.x) * kVec;
      total_row[c] = fusec::load<kVec>(total_ + row * kColumns + column);
    }
    float sum_1_part = fusec::Sum<float>::identity();
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int column = (c * kThreadsX + threadIdx.x) * kVec;
      fusec::Vec<fusec::bf16, kVec> r_vec;
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        const float r_value = fusec::round_to<fusec::bf16>(fusec::to_float(total_row[c][v]) +
                                                           fusec::to_float(residual_row[c][v]));
        sum_1_part += r_value * r_value;
        r_vec[v] = fusec::convert<fusec::bf16>(r_value);
      }
      fusec::store(r_ + row * kColumns + column, r_vec);
    }
    const float sum_1 =
        fusec::block_reduce_rows<fusec::Sum<float>, kThreadsX, kThreadsY>(sum_1_part);

    const float add_1 = fusec::divide(sum_1, static_cast<float>(kColumns)) + 1e-5f;
    const float rsqrt_1 = rsqrtf(add_1);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int column = (c * kThreadsX + threadIdx.x) * kVec;
      const auto weight_vec = fusec::load_readonly<kVec>(weight + column);
      fusec::Vec<fusec::bf16, kVec> y_vec;
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        const float r_value = fusec::round_to<fusec::bf16>(fusec::to_float(total_row[c][v]) +
                                                           fusec::to_float(residual_row[c][v]));
        y_vec[v] = fusec::convert<fusec::bf16>(r_value * rsqrt_1 * fusec::to_float(weight_vec[v]));
      }
      fusec::store(y + row * kColumns + column, y_vec);
    }
  }
}
