// linear_int4_matmul: A linear layer of a few tokens, with weights of four bits and a scale for
//   each 128 of them.
// Source: linear_int4.yaml
//   11: low = broadcast(bitwise_and(w, 15), [false, false, true])
//   12: high = broadcast(bitwise_right_shift(w, 4), [false, false, true])
//   13: q = cast(cast(cat([low, high], dim=2), i32) - 8, bf16)
//   14: grouped = reshape(q, new_shape=[512, 8, 128]) * broadcast(scale, [false, false, true])
//   15: y = linear(x, reshape(grouped, new_shape=[512, 1024]))
// Schedule: M_size x 512 x 1024 in tiles of 8 x 32, a stream over w into mma.sync.
#include "block_scales.cuh"
#include "matmul_gemv.cuh"
#include "matmul_tile.cuh"
#include "matmul_weights.cuh"
#include "types.cuh"
#include "vector.cuh"
#include "weights.cuh"

using Index = int;

// Tile, stages and warp roles.
struct Config {
  using T = fusec::bf16;                   // operands in shared memory
  static constexpr int kTileM = 8;         // rows of an output tile
  static constexpr int kTileN = 32;        // columns of an output tile
  static constexpr int kTileK = 1024;      // elements of K per stage
  using W = fusec::u8;                     // elements of B in memory
  using Codes = fusec::Nibbles<T>;         // their conversion to 16-bit floats
  static constexpr bool kScaled = true;    // scales per group of elements of K
  static constexpr bool kLowered = false;  // zero points per group
  static constexpr int kGroup = 128;       // elements of K per group
  static constexpr int kStages = 1;        // chunks in flight per warp
  static constexpr int kWarps = 8;         // warps that divide K
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kResident = 2;            // blocks per SM
  static constexpr int kSumsPitch = kTileN + 4;  // row pitch of partial sums, in floats
  static constexpr int kRasterGroup = 8;         // tile rows per raster group
  static constexpr bool kAKMajor = true;         // A is K-major, else M-major
  static constexpr bool kBKMajor = true;         // B is K-major, else N-major
};

constexpr int kWidth = 4;  // neighbouring columns per access
using Sums = fusec::Vec<float, kWidth>;

extern "C" __global__ void __launch_bounds__(Config::kThreads, Config::kResident)
    linear_int4_matmul(const fusec::bf16* __restrict__ x,
                       const fusec::u8* __restrict__ w,
                       const fusec::bf16* __restrict__ scale,
                       fusec::bf16* __restrict__ y,
                       fusec::i64 M_size) {
  __shared__ __align__(16) float tiles[Config::kWarps][Config::kTileM][Config::kSumsPitch];
  const int M = static_cast<int>(M_size);
  constexpr int N = 512;
  constexpr int K = 1024;
  constexpr int a_stride_m = K;
  constexpr int a_stride_k = 1;
  constexpr int b_stride_k = 1;
  constexpr int b_stride_n = 512;
  const int tile_rows = fusec::tile_count(M, Config::kTileM);
  const int tile_columns = fusec::tile_count(N, Config::kTileN);
  const auto tile = fusec::matmul_tile<Config::kRasterGroup>(blockIdx.x, tile_rows, tile_columns);
  const Index tile_m = tile.row * Config::kTileM;
  const Index tile_n = tile.column * Config::kTileN;
  const int a_offset = 0;
  const int b_offset = 0;
  const auto a_part = fusec::matmul_operand(x + a_offset, tile_m, M, a_stride_m, a_stride_k);
  const auto b_part = fusec::matmul_operand(w + b_offset, tile_n, N, b_stride_n, b_stride_k);

  // Epilogue of kWidth neighbouring elements, starting at row m and column n.
  const auto finish = [&](Index m, Index n, const Sums& acc) {
    fusec::Vec<fusec::bf16, kWidth> y_vec;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      y_vec[i] = fusec::convert<fusec::bf16>(acc[i]);
    }
    fusec::store(y + m * N + n, y_vec);
  };

  const Index first = 0;
  const Index last = K;
  float accumulators[Config::kTileN / 16][Config::kTileM / 8][4] = {};
  const fusec::BlockScales<1, fusec::bf16, Index> b_scales = {scale, tile_n, N, 8, 1};
  fusec::multiply_weight_vectors<Config>(accumulators, a_part, b_part, b_scales, fusec::Unscaled{},
                                         first, last);
  fusec::store_accumulators<Config>(tiles[threadIdx.x / 32], accumulators);
  __syncthreads();

  // A thread finishes kWidth columns of a row at a time; kWidth divides N if it is above 1.
  const auto visit = [&](int row, int column, int) {
    const Index m = tile_m + row;
    const Index n = tile_n + column;
    finish(m, n, fusec::sum_warps<Config, kWidth>(tiles, row, column));
  };
  fusec::visit_pieces<Config, kWidth>(M - tile_m, N - tile_n, visit);
}
