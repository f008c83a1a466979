// linear_decode_matmul: A linear layer of the tokens that a model decodes at a time, gated by
//   another one's result.
// Source: linear_decode.yaml
//   13: y = silu(gate) * linear(x, w)
// Schedule: M_size x 4096 x 4096 in tiles of 8 x 16, a stream over w into mma.sync.
#include "fast_math.cuh"
#include "matmul_gemv.cuh"
#include "matmul_tile.cuh"
#include "rounding.cuh"
#include "types.cuh"
#include "vector.cuh"

using Index = int;

// Tile, stages and warp roles.
struct Config {
  using T = fusec::bf16;              // operands in shared memory
  static constexpr int kTileM = 8;    // rows of an output tile
  static constexpr int kTileN = 16;   // columns of an output tile
  static constexpr int kTileK = 512;  // elements of K per stage
  static constexpr int kStages = 2;   // chunks in flight per warp
  static constexpr int kWarps = 8;    // warps that divide K
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
    linear_decode_matmul(const fusec::bf16* __restrict__ x,
                         const fusec::bf16* __restrict__ w,
                         const fusec::bf16* __restrict__ gate,
                         fusec::bf16* __restrict__ y,
                         fusec::i64 M_size) {
  __shared__ __align__(16) float tiles[Config::kWarps][Config::kTileM][Config::kSumsPitch];
  const int M = static_cast<int>(M_size);
  constexpr int N = 4096;
  constexpr int K = 4096;
  constexpr int a_stride_m = K;
  constexpr int a_stride_k = 1;
  constexpr int b_stride_k = 1;
  constexpr int b_stride_n = K;
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
    const auto gate_vec = fusec::load_readonly<kWidth>(gate + m * N + n);
    fusec::Vec<fusec::bf16, kWidth> y_vec;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float silu_1 =
          fusec::round_to<fusec::bf16>(fusec::silu_approx(fusec::to_float(gate_vec[i])));
      y_vec[i] = fusec::convert<fusec::bf16>(silu_1 * fusec::round_to<fusec::bf16>(acc[i]));
    }
    fusec::store(y + m * N + n, y_vec);
  };

  const Index first = 0;
  const Index last = K;
  float accumulators[Config::kTileN / 16][Config::kTileM / 8][4] = {};
  fusec::multiply_vectors<Config>(accumulators, a_part, b_part, first, last);
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
