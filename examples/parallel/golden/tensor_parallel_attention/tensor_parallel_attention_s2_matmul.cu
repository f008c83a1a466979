// tensor_parallel_attention_s2_matmul: Self-attention whose heads are divided over the ranks.
// Source: examples/parallel/tensor_parallel_attention.yaml
//   14: q = permute(reshape(linear(x, wq), [B, S, H, E]), [0, 2, 1, 3])
//   15: k = permute(reshape(linear(x, wk), [B, S, H, E]), [0, 2, 3, 1])
//   17: p = softmax(mul(cast(matmul(q, k), f32), 0.125), dim=3)
// Schedule: B * 4 times 1024 x 1024 x 64 in tiles of 128 x 128, one CTA per tile, asynchronous
//   copies into mma.sync.
#include "matmul_fragments.cuh"
#include "matmul_mma.cuh"
#include "matmul_tile.cuh"
#include "types.cuh"
#include "vector.cuh"

using Index = int;

// Tile, stages and roles of this kernel, and where its shared memory holds what.
struct Config {
  using T = fusec::bf16;              // of the operands in shared memory
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
  static constexpr int kAPitch = 40;         // elements from row to row of A's tile
  static constexpr int kBPitch = 40;         // and of B's
  static constexpr int kATileBytes = 10240;  // A's tile of a stage; B's follows
  static constexpr int kStageBytes = 20480;  // of one stage
};

constexpr int kWidth = 8;  // neighbouring columns of one access
using Sums = fusec::Vec<float, kWidth>;

extern "C" __global__ void __launch_bounds__(Config::kThreads, 1)
    tensor_parallel_attention_s2_matmul(const fusec::bf16* __restrict__ linear_1,
                                        const fusec::bf16* __restrict__ linear_2,
                                        fusec::bf16* __restrict__ matmul_1) {
  extern __shared__ __align__(16) unsigned char shared[];
  constexpr int M = 1024;
  constexpr int N = 1024;
  constexpr int K = 64;
  constexpr int a_stride_m = 256;
  constexpr int a_stride_k = 1;
  constexpr int b_stride_k = 1;
  constexpr int b_stride_n = 256;
  const int tile_rows = fusec::tile_count(M, Config::kTileM);
  const int tile_columns = fusec::tile_count(N, Config::kTileN);
  const auto tile = fusec::matmul_tile<Config::kBand>(blockIdx.x, tile_rows, tile_columns);
  const Index tile_m = static_cast<Index>(tile.row) * Config::kTileM;
  const Index tile_n = static_cast<Index>(tile.column) * Config::kTileN;
  const int batch = tile.batch;
  const int batch_over_4 = batch / 4;
  const int batch_mod_4 = batch % 4;
  const int a_offset = batch_over_4 * 262144 + batch_mod_4 * 64;
  const int b_offset = batch_over_4 * 262144 + batch_mod_4 * 64;
  const auto a_part = fusec::matmul_operand(linear_1 + a_offset, tile_m, M, a_stride_m, a_stride_k);
  const auto b_part = fusec::matmul_operand(linear_2 + b_offset, tile_n, N, b_stride_n, b_stride_k);

  // The epilogue of neighbouring sums of row m of a batch, from column n on.
  const auto finish = [&](Index batch, Index m, Index n, const Sums& acc) {
    fusec::Vec<fusec::bf16, kWidth> matmul_1_vec;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      matmul_1_vec[i] = fusec::convert<fusec::bf16>(acc[i]);
    }
    fusec::store(matmul_1 + batch * 1048576 + m * 1024 + n, matmul_1_vec);
  };

  const int warp = threadIdx.x / 32;
  const int warp_m = warp / (Config::kTileN / Config::kWarpN) * Config::kWarpM;
  const int warp_n = warp % (Config::kTileN / Config::kWarpN) * Config::kWarpN;
  float sums[Config::kWarpM / 16][Config::kWarpN / 8][4] = {};
  fusec::multiply_steps<Config>(sums, shared, a_part, b_part, K, warp_m, warp_n);

#pragma unroll
  for (int i = 0; i < Config::kWarpM / 16; ++i) {
    const auto held = [&](int block, int e) { return sums[i][block][e]; };
    const auto visit = [&](int row, int column, const Sums& acc) {
      const Index m = tile_m + warp_m + 16 * i + row;
      const Index n = tile_n + warp_n + column;
      if (m < M && n < N) finish(tile.batch, m, n, acc);
    };
    fusec::visit_blocks<kWidth, Config::kWarpN / 8>(held, visit);
  }
}
