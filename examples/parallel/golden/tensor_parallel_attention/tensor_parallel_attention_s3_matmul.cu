// tensor_parallel_attention_s3_matmul: Self-attention whose heads are divided over the ranks.
// Source: tensor_parallel_attention.yaml
//   21: y = linear(a, wo)
// Schedule: B * S x 1024 x 256 in tiles of 192 x 88, one CTA per SM over all tiles, bulk copies
//   into wgmma.
#include "matmul_hopper.cuh"
#include "matmul_tile.cuh"
#include "staged_rows.cuh"
#include "tma.cuh"
#include "types.cuh"
#include "vector.cuh"
#include "wgmma.cuh"

using Index = int;

// Tile, stages and warp roles, and the layout of shared memory.
struct Config {
  using T = fusec::bf16;                // operands in shared memory
  static constexpr int kTileM = 192;    // rows of an output tile
  static constexpr int kTileN = 88;     // columns of an output tile
  static constexpr int kTileK = 64;     // elements of K per stage
  static constexpr int kStages = 5;     // stages in flight
  static constexpr int kConsumers = 3;  // warpgroups with 64 rows each; one more loads
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr bool kSwapAB = false;          // columns of B are rows of wgmma
  static constexpr int kAccumulators = 44;        // per consumer thread
  static constexpr int kReaders = 12;             // warps that read a stage
  static constexpr int kProducerRegisters = 32;   // per producer thread
  static constexpr int kConsumerRegisters = 160;  // per consumer thread
  static constexpr int kRasterGroup = 8;          // tile rows per raster group
  static constexpr bool kAKMajor = true;          // A is K-major, else M-major
  static constexpr bool kBKMajor = true;          // B is K-major, else N-major

  // Shared memory, in bytes.
  // Tile of A in a stage; the tile of B follows.
  static constexpr int kATileBytes = kTileM * kTileK * 2;
  // One stage.
  static constexpr int kStageBytes = kATileBytes + kTileN * kTileK * 2;
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
    tensor_parallel_attention_s3_matmul(const __grid_constant__ fusec::TensorMap a_map,
                                        const __grid_constant__ fusec::TensorMap wo_map,
                                        fusec::bf16* __restrict__ y_partial,
                                        fusec::i64 B,
                                        fusec::i64 S) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const int M = static_cast<int>(B * S);
  constexpr int N = 1024;
  constexpr int K = 256;
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
        const fusec::TileSource a_rows = {&a_map, m, 0};
        const fusec::TileSource b_columns = {&wo_map, n, 0};
        fusec::load_stages<Config>(shared, a_rows, b_columns, 0, steps, stage, parity);
      }
    }
  } else {
    fusec::alloc_registers<Config::kConsumerRegisters>();
    fusec::bf16* const y_partial_rows =
        fusec::rows_of_warp<Config, fusec::bf16>(shared + Config::kStaged0);
    const auto y_partial_at = [&](Index m, Index n) { return y_partial + m * N + n; };
    // Epilogue of kWidth neighbouring elements, starting at row m and column n.
    const auto finish = [&](Index m, Index n, int place, const Sums& acc) {
      fusec::Vec<fusec::bf16, kWidth> y_partial_vec;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        y_partial_vec[i] = fusec::convert<fusec::bf16>(acc[i]);
      }
      fusec::store(y_partial_rows + place, y_partial_vec);
    };
    const int warp_m = threadIdx.x / 128 * (Config::kTileM / 3) + threadIdx.x / 32 % 4 * 16;
    int stage = 0;
    fusec::u32 parity = 0;
    for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
      const auto tile = fusec::matmul_tile<Config::kRasterGroup>(index, tile_rows, tile_columns);
      const Index tile_m = tile.row * Config::kTileM;
      const Index tile_n = tile.column * Config::kTileN;
      float accumulators[Config::kAccumulators];
      fusec::multiply_stages<Config>(accumulators, shared, 0, steps, stage, parity);
      const auto visit = [&](int row, int column, int place, const Sums& acc) {
        // Out of bounds, the last elements are recomputed and not stored.
        const Index m = min(tile_m + warp_m + row, M - 1);
        const Index n = min(tile_n + column, N - kWidth);
        finish(m, n, place, acc);
      };
      const Index columns = min(N - tile_n, static_cast<Index>(Config::kTileN));
      const auto leave = [&](int first_row, int first_column, int place) {
        const auto y_partial_here = [&](int row, int column) {
          const Index m = tile_m + warp_m + first_row + row;
          const Index n = tile_n + first_column + column;
          return y_partial_at(m, n);
        };
        fusec::store_rows<Config>(y_partial_rows + place, y_partial_here,
                                  M - tile_m - warp_m - first_row, columns - first_column);
      };
      fusec::visit_pairs<Config>(accumulators, visit, leave);
    }
  }
}
