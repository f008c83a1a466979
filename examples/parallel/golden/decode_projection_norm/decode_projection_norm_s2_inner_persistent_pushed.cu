// decode_projection_norm_s2_inner_persistent_pushed: The last projection of attention for a token
//   of each sequence, the residual, and the norm of a row.
// Source: decode_projection_norm.yaml
//   14: r = p + residual
//   15: f = cast(r, f32)
//   16: v = mean(f * f, dims=[1], keepdim=true)
//   17: y = cast(f * rsqrt(v + 1e-5) * scale, bf16)
// Schedule: 256 threads per row, accesses of 8 elements; rows are added over ranks as they arrive,
//   and stay in registers.
#include "combine.cuh"
#include "math.cuh"
#include "push_rows.cuh"
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
    decode_projection_norm_s2_inner_persistent_pushed(
        const fusec::bf16* __restrict__ p_partial,
        const fusec::bf16* __restrict__ residual,
        const fusec::bf16* __restrict__ scale,
        fusec::bf16* __restrict__ r_,
        fusec::bf16* __restrict__ y,
        const __grid_constant__ fusec::PushSum mailboxes) {
  const fusec::PushedRows<fusec::bf16, kColumns> sums(p_partial, mailboxes, blockIdx.x, gridDim.x);
  const fusec::bf16* const p = sums.totals();
  for (int turn = 0; turn < sums.turns; ++turn) {
    const int row = sums.row(turn);
    fusec::Vec<fusec::bf16, kVec> p_row[kChunks];
    fusec::Vec<fusec::bf16, kVec> residual_row[kChunks];

    // Inputs that are already available are loaded before the row of the sum is received.
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int column = (c * kThreadsX + threadIdx.x) * kVec;
      residual_row[c] = fusec::load_readonly<kVec>(residual + row * kColumns + column);
    }
    sums.receive(turn);
    // The row stays in registers between the phases.
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int column = (c * kThreadsX + threadIdx.x) * kVec;
      p_row[c] = fusec::load<kVec>(p + row * kColumns + column);
    }
    float sum_1_part = fusec::Sum<float>::identity();
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int column = (c * kThreadsX + threadIdx.x) * kVec;
      fusec::Vec<fusec::bf16, kVec> r_vec;
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        const float r_value = fusec::round_to<fusec::bf16>(fusec::to_float(p_row[c][v]) +
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
      const auto scale_vec = fusec::load_readonly<kVec>(scale + column);
      fusec::Vec<fusec::bf16, kVec> y_vec;
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        const float r_value = fusec::round_to<fusec::bf16>(fusec::to_float(p_row[c][v]) +
                                                           fusec::to_float(residual_row[c][v]));
        y_vec[v] = fusec::convert<fusec::bf16>(r_value * rsqrt_1 * fusec::to_float(scale_vec[v]));
      }
      fusec::store(y + row * kColumns + column, y_vec);
    }
  }
}
