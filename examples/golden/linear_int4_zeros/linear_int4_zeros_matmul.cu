// linear_int4_zeros_matmul: A linear layer with weights of four bits along N, and scales and zero
//   points of 64 of them.
// Source: examples/linear_int4_zeros.yaml
//   12: w_low = broadcast(bitwise_and(w, 15), [false, false, true])
//   13: w_high = broadcast(bitwise_right_shift(w, 4), [false, false, true])
//   14: q = reshape(cast(cat([w_low, w_high], dim=2), i32), new_shape=[16, 64, 512])
//   15: z_low = broadcast(bitwise_and(zero, 15), [false, false, true])
//   16: z_high = broadcast(bitwise_right_shift(zero, 4), [false, false, true])
//   17: z = reshape(cast(cat([z_low, z_high], dim=2), i32), new_shape=[16, 512])
//   18: centred = cast(sub(q, broadcast(z, [false, true, false])), bf16)
//   19: weights = mul(centred, broadcast(scale, [false, true, false]))
//   20: y = matmul(x, reshape(weights, new_shape=[1024, 512]))
// Schedule: M_size x 512 x 1024 in tiles of 8 x 64, a stream over w into mma.sync.
#include "block_scales.cuh"
#include "matmul_tile.cuh"
#include "matmul_vector.cuh"
#include "matmul_weights_across.cuh"
#include "types.cuh"
#include "vector.cuh"
#include "weights.cuh"

using Index = int;

// Tile, stages and roles of this kernel.
struct Config {
  using T = fusec::bf16;                     // of the operands in shared memory
  static constexpr int kTileM = 8;           // rows of an output tile
  static constexpr int kTileN = 64;          // columns of an output tile
  static constexpr int kTileK = 512;         // depth of a stage
  using W = fusec::u8;                       // of B's elements in memory
  using Codes = fusec::Nibbles<T>;           // as halves
  static constexpr bool kScaled = true;      // each group of K has scales of its own
  static constexpr bool kLowered = true;     // and zero points
  static constexpr int kRaised = 0;          // added to what B's elements are around 0
  static constexpr int kGroup = 64;          // elements of K that share them
  static constexpr bool kPackedRows = true;  // a byte has two columns
  static constexpr int kStages = 1;          // parts of a warp in flight
  static constexpr int kWarps = 8;           // warps that share K
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kResident = 2;            // blocks that an SM has room for
  static constexpr int kSumsPitch = kTileN + 4;  // floats from row to row of a warp's sums
  static constexpr int kBand = 8;                // tile rows walked together, for the L2
  static constexpr bool kAKMajor = true;         // A is contiguous along K, else along M
  static constexpr bool kBKMajor = false;        // B is contiguous along K, else along N
};

constexpr int kWidth = 4;  // neighbouring columns of one access
using Sums = fusec::Vec<float, kWidth>;

extern "C" __global__ void __launch_bounds__(Config::kThreads, Config::kResident)
    linear_int4_zeros_matmul(const fusec::bf16* __restrict__ x,
                             const fusec::u8* __restrict__ w,
                             const fusec::u8* __restrict__ zero,
                             const fusec::bf16* __restrict__ scale,
                             fusec::bf16* __restrict__ y,
                             fusec::i64 M_size) {
  __shared__ __align__(16) float tiles[Config::kWarps][Config::kTileM][Config::kSumsPitch];
  const int M = M_size;
  constexpr int N = 512;
  constexpr int K = 1024;
  constexpr int a_stride_m = 1024;
  constexpr int a_stride_k = 1;
  constexpr int b_stride_k = 256;
  constexpr int b_stride_n = 1;
  const int tile_rows = fusec::tile_count(M, Config::kTileM);
  const int tile_columns = fusec::tile_count(N, Config::kTileN);
  const auto tile = fusec::matmul_tile<Config::kBand>(blockIdx.x, tile_rows, tile_columns);
  const Index tile_m = static_cast<Index>(tile.row) * Config::kTileM;
  const Index tile_n = static_cast<Index>(tile.column) * Config::kTileN;
  const int a_offset = 0;
  const int b_offset = 0;
  const auto a_part = fusec::matmul_operand(x + a_offset, tile_m, M, a_stride_m, a_stride_k);
  const auto b_part = fusec::matmul_operand(w + b_offset, tile_n, N, b_stride_n, b_stride_k);

  // The epilogue of neighbouring sums of row m, from column n on.
  const auto finish = [&](Index m, Index n, const Sums& acc) {
    fusec::Vec<fusec::bf16, kWidth> y_vec;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      y_vec[i] = fusec::convert<fusec::bf16>(acc[i]);
    }
    fusec::store(y + m * 512 + n, y_vec);
  };

  const Index first = 0;
  const Index last = K;
  float sums[Config::kTileN / 16][Config::kTileM / 8][4] = {};
  const fusec::BlockScales<1, fusec::bf16, Index> b_scales = {scale, tile_n, N, 1, 512};
  const fusec::BlockScales<2, fusec::u8, Index> b_zero_values = {zero, tile_n, N, 1, 256};
  const auto b_zeros = fusec::zero_points<2, 1, 0, -8>(b_zero_values);
  fusec::multiply_weights_across<Config>(sums, a_part, b_part, b_scales, b_zeros, first, last);
  fusec::leave_sums<Config, 1>(tiles[threadIdx.x / 32], sums);
  __syncthreads();

  // A thread owns kWidth columns of a row at a time; kWidth divides N when it is above 1.
  const auto visit = [&](int row, int column, int) {
    const Index m = tile_m + row;
    const Index n = tile_n + column;
    finish(m, n, fusec::sum_warps<Config, kWidth>(tiles, row, column));
  };
  fusec::visit_pieces<Config, kWidth>(M - tile_m, N - tile_n, visit);
}
