// linear_fp8_blocks_matmul: A linear layer of 8-bit floats, with a scale for each block of x and of
//   w.
// Source: linear_fp8_blocks.yaml
//   10: x_blocks = reshape(cast(x, f32), new_shape=[128, 8, 128])
//   11: w_blocks = reshape(cast(w, f32), new_shape=[4, 128, 8, 128])
//   12: x_scaled = x_blocks * broadcast(x_scale, [false, false, true])
//   13: w_scaled = w_blocks * broadcast(w_scale, [false, true, false, true])
//   14: p = linear(reshape(x_scaled, new_shape=[128, 1024]), reshape(w_scaled, new_shape=[512,
//     1024]))
//   15: y = cast(p, bf16)
// Schedule: 128 x 512 x 1024 in tiles of 128 x 64, one CTA per SM over all tiles, bulk copies into
//   wgmma.
#include "block_scales.cuh"
#include "matmul_hopper.cuh"
#include "matmul_promoted.cuh"
#include "matmul_tile.cuh"
#include "staged_rows.cuh"
#include "tma.cuh"
#include "types.cuh"
#include "vector.cuh"
#include "wgmma.cuh"

using Index = int;

// Tile, stages and warp roles, and the layout of shared memory.
struct Config {
  using TA = fusec::f8e4m3;             // elements of A
  using TB = fusec::f8e4m3;             // elements of B
  static constexpr int kTileM = 128;    // rows of an output tile
  static constexpr int kTileN = 64;     // columns of an output tile
  static constexpr int kTileK = 128;    // elements of K per stage
  static constexpr int kStages = 8;     // stages in flight
  static constexpr int kConsumers = 2;  // warpgroups with 64 rows each; one more loads
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr bool kSwapAB = false;          // columns of B are rows of wgmma
  static constexpr int kAccumulators = 32;        // per consumer thread
  static constexpr int kReaders = 8;              // warps that read a stage
  static constexpr int kProducerRegisters = 40;   // per producer thread
  static constexpr int kConsumerRegisters = 232;  // per consumer thread
  static constexpr int kRasterGroup = 8;          // tile rows per raster group
  static constexpr bool kAKMajor = true;          // A is K-major, else M-major
  static constexpr bool kBKMajor = true;          // B is K-major, else N-major

  // Shared memory, in bytes.
  // Tile of A in a stage; the tile of B follows.
  static constexpr int kATileBytes = kTileM * kTileK;
  // One stage.
  static constexpr int kStageBytes = kATileBytes + kTileN * kTileK;
  // Rows per warp that are staged at a time.
  static constexpr int kStagedRows = 16;
  // Columns that are staged at a time.
  static constexpr int kStagedColumns = 64;
  // Row pitch of staged rows, in elements.
  static constexpr int kStagedPitch = kStagedColumns + 8;
  // Rows of 16 bits.
  static constexpr int kStaged0 = kStages * kStageBytes;
  // Barriers, one per stage: loads are complete.
  static constexpr int kFull = kStaged0 + 4 * kConsumers * kStagedRows * kStagedPitch * 2;
  // Barriers, one per stage: reads are complete.
  static constexpr int kEmpty = kFull + kStages * 8;
};

constexpr int kWidth = 2;  // neighbouring columns per access
using Sums = fusec::Vec<float, kWidth>;

extern "C" __global__ void __launch_bounds__(Config::kThreads, 1)
    linear_fp8_blocks_matmul(const __grid_constant__ fusec::TensorMap x_map,
                             const __grid_constant__ fusec::TensorMap w_map,
                             const float* __restrict__ x_scale,
                             const float* __restrict__ w_scale,
                             fusec::bf16* __restrict__ y) {
  extern __shared__ __align__(1024) unsigned char shared[];
  constexpr int M = 128;
  constexpr int N = 512;
  constexpr int K = 1024;
  constexpr int batches = 1;
  const int tile_rows = fusec::tile_count(M, Config::kTileM);
  const int tile_columns = fusec::tile_count(N, Config::kTileN);
  const int tiles = tile_rows * tile_columns * batches;
  const int steps = fusec::tile_count(K, Config::kTileK);

  if (threadIdx.x == 0) fusec::init_stages<Config, Config::kReaders>(shared);
  __syncthreads();

  if (threadIdx.x >= 128 * Config::kConsumers) {
    // Producer: one thread keeps kStages loads in flight, across tiles.
    fusec::dealloc_registers<Config::kProducerRegisters>();
    if (threadIdx.x == 128 * Config::kConsumers) {
      int stage = 0;
      fusec::u32 parity = 1;
      for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
        const auto tile = fusec::matmul_tile<Config::kRasterGroup>(index, tile_rows, tile_columns);
        const int m = tile.row * Config::kTileM;
        const int n = tile.column * Config::kTileN;
        const fusec::TileSource a_rows = {&x_map, m, 0};
        const fusec::TileSource b_columns = {&w_map, n, 0};
        fusec::load_stages<Config>(shared, a_rows, b_columns, 0, steps, stage, parity);
      }
    }
  } else {
    fusec::alloc_registers<Config::kConsumerRegisters>();
    fusec::bf16* const y_rows = fusec::rows_of_warp<Config, fusec::bf16>(shared + Config::kStaged0);
    const auto y_at = [&](Index m, Index n) { return y + m * N + n; };
    // Epilogue of kWidth neighbouring elements, starting at row m and column n.
    const auto finish = [&](Index m, Index n, int place, const Sums& acc) {
      fusec::Vec<fusec::bf16, kWidth> y_vec;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        y_vec[i] = fusec::convert<fusec::bf16>(acc[i]);
      }
      fusec::store(y_rows + place, y_vec);
    };
    const int warp_m = threadIdx.x / 128 * (Config::kTileM / 2) + threadIdx.x / 32 % 4 * 16;
    int stage = 0;
    fusec::u32 parity = 0;
    for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
      const auto tile = fusec::matmul_tile<Config::kRasterGroup>(index, tile_rows, tile_columns);
      const Index tile_m = tile.row * Config::kTileM;
      const Index tile_n = tile.column * Config::kTileN;
      float accumulators[Config::kAccumulators];
      const fusec::BlockScales<1, float, Index> a_scales = {x_scale, tile_m, M, 8, 1};
      const fusec::BlockScales<128, float, Index> b_scales = {w_scale, tile_n, N, 8, 1};
      fusec::multiply_promoted<Config>(accumulators, shared, 0, steps, stage, parity, a_scales,
                                       b_scales);
      const auto visit = [&](int row, int column, int place, const Sums& acc) {
        // Out of bounds, the last elements are recomputed and not stored.
        const Index m = min(tile_m + warp_m + row, M - 1);
        const Index n = min(tile_n + column, N - kWidth);
        finish(m, n, place, acc);
      };
      const auto leave = [&](int first_row, int first_column, int place) {
        const auto y_here = [&](int row, int column) {
          const Index m = tile_m + warp_m + first_row + row;
          const Index n = tile_n + first_column + column;
          return y_at(m, n);
        };
        fusec::store_rows<Config>(y_rows + place, y_here, M - tile_m - warp_m - first_row,
                                  N - tile_n - first_column);
      };
      fusec::visit_pairs<Config>(accumulators, visit, leave);
    }
  }
}
