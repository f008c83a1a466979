// linear_tf32_matmul: A linear layer of floats with SiLU, of whose factors 10 bits behind the point
//   count.
// Source: examples/linear_tf32.yaml
//   13: y = silu(linear(tf32(x), tf32(w), bias))
// Schedule: M_size x 1024 x 1024 in tiles of 128 x 128, one CTA per tile, asynchronous copies into
//   mma.sync.
#include "math.cuh"
#include "matmul_fragments.cuh"
#include "matmul_tf32.cuh"
#include "matmul_tile.cuh"
#include "types.cuh"
#include "vector.cuh"

using Index = int;

// Tile, stages and roles of this kernel, and where its shared memory holds what.
struct Config {
  using T = float;                    // of the operands in shared memory
  static constexpr int kTileM = 128;  // rows of an output tile
  static constexpr int kTileN = 128;  // columns of an output tile
  static constexpr int kTileK = 32;   // depth of a stage
  static constexpr int kStages = 3;   // stages in flight
  static constexpr int kWarpM = 64;   // rows of a warp's part
  static constexpr int kWarpN = 32;   // columns of a warp's part
  static constexpr int kThreads = 32 * (kTileM / kWarpM) * (kTileN / kWarpN);
  static constexpr bool kAAsync = true;   // A is copied by cp.async, 16 bytes at a time
  static constexpr bool kBAsync = true;   // B too
  static constexpr int kBand = 8;         // tile rows walked together, for the L2
  static constexpr bool kAKMajor = true;  // A is contiguous along K, else along M
  static constexpr bool kBKMajor = true;  // B is contiguous along K, else along N

  // Shared memory, in bytes.
  static constexpr int kAPitch = 36;         // elements from row to row of A's tile
  static constexpr int kBPitch = 36;         // and of B's
  static constexpr int kATileBytes = 18432;  // A's tile of a stage; B's follows
  static constexpr int kStageBytes = 36864;  // of one stage
};

constexpr int kWidth = 8;  // neighbouring columns of one access
using Sums = fusec::Vec<float, kWidth>;

extern "C" __global__ void __launch_bounds__(Config::kThreads, 1)
    linear_tf32_matmul(const float* __restrict__ x,
                       const float* __restrict__ w,
                       const float* __restrict__ bias,
                       float* __restrict__ y,
                       fusec::i64 M_size) {
  extern __shared__ __align__(16) unsigned char shared[];
  const int M = M_size;
  constexpr int N = 1024;
  constexpr int K = 1024;
  constexpr int a_stride_m = 1024;
  constexpr int a_stride_k = 1;
  constexpr int b_stride_k = 1;
  constexpr int b_stride_n = 1024;
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
    const auto bias_vec = fusec::load_readonly<kWidth>(bias + n);
    fusec::Vec<float, kWidth> y_vec;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      y_vec[i] = fusec::silu(acc[i] + bias_vec[i]);
    }
    fusec::store(y + m * 1024 + n, y_vec);
  };

  const int warp = threadIdx.x / 32;
  const int warp_m = warp / (Config::kTileN / Config::kWarpN) * Config::kWarpM;
  const int warp_n = warp % (Config::kTileN / Config::kWarpN) * Config::kWarpN;
  float sums[Config::kWarpM / 16][Config::kWarpN / 8][4] = {};
  fusec::multiply_tf32_steps<Config>(sums, shared, a_part, b_part, K, warp_m, warp_n);

#pragma unroll
  for (int i = 0; i < Config::kWarpM / 16; ++i) {
    const auto held = [&](int block, int e) { return sums[i][block][e]; };
    const auto visit = [&](int row, int column, const Sums& acc) {
      const Index m = tile_m + warp_m + 16 * i + row;
      const Index n = tile_n + warp_n + column;
      if (m < M && n < N) finish(m, n, acc);
    };
    fusec::visit_blocks<kWidth, Config::kWarpN / 8>(held, visit);
  }
}
