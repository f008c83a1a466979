// stream_rows_s1_matmul: Two products in turn over parts of the rows.
// Source: stream_rows.yaml
//   11: h = gelu(linear(x, up))
// Schedule: M_size // 8 x 4096 x 1024 in tiles of 128 x 128, one CTA per SM over all tiles,
//   warpgroups in turn, bulk copies into wgmma.
#include "fast_math.cuh"
#include "matmul_hopper.cuh"
#include "matmul_tile.cuh"
#include "rounding.cuh"
#include "staged_rows.cuh"
#include "tma.cuh"
#include "types.cuh"
#include "vector.cuh"
#include "wgmma.cuh"

using Index = int;

// Tile, stages and warp roles, and the layout of shared memory.
struct Config {
  using T = fusec::bf16;                // operands in shared memory
  static constexpr int kTileM = 128;    // rows of an output tile
  static constexpr int kTileN = 128;    // columns of an output tile
  static constexpr int kTileK = 64;     // elements of K per stage
  static constexpr int kStages = 6;     // stages in flight
  static constexpr int kConsumers = 2;  // warpgroups with tiles of 128 rows; one more loads
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr bool kSwapAB = false;          // columns of B are rows of wgmma
  static constexpr int kAccumulators = 128;       // per consumer thread
  static constexpr int kReaders = 4;              // warps that read a stage
  static constexpr int kProducerRegisters = 24;   // per producer thread
  static constexpr int kConsumerRegisters = 240;  // per consumer thread
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

// Overrides of how stages are loaded and multiplied.
struct Pipeline : fusec::PlainPipeline {
  static constexpr bool kPingPong = true;  // two warpgroups alternate between tiles
};

constexpr int kWidth = 2;  // neighbouring columns per access
using Sums = fusec::Vec<float, kWidth>;

extern "C" __global__ void __launch_bounds__(Config::kThreads, 1)
    stream_rows_s1_matmul(const __grid_constant__ fusec::TensorMap x_slice_map,
                          const __grid_constant__ fusec::TensorMap up_map,
                          fusec::bf16* __restrict__ h,
                          fusec::i64 M_size) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const int M = static_cast<int>(M_size / 8);
  constexpr int N = 4096;
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
        const fusec::TileSource a_rows = {&x_slice_map, m, 0};
        const fusec::TileSource b_columns = {&up_map, n, 0};
        fusec::load_stages<Config, Pipeline>(shared, a_rows, b_columns, 0, steps, stage, parity);
      }
    }
  } else {
    fusec::alloc_registers<Config::kConsumerRegisters>();
    fusec::bf16* const h_rows = fusec::rows_of_warp<Config, fusec::bf16>(shared + Config::kStaged0);
    const auto h_at = [&](Index m, Index n) { return h + m * N + n; };
    // Epilogue of kWidth neighbouring elements, starting at row m and column n.
    const auto finish = [&](Index m, Index n, int place, const Sums& acc) {
      fusec::Vec<fusec::bf16, kWidth> h_vec;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float mul_3 = fusec::gelu_approx(fusec::round_to<fusec::bf16>(acc[i]));
        h_vec[i] = fusec::convert<fusec::bf16>(mul_3);
      }
      fusec::store(h_rows + place, h_vec);
    };
    // Warpgroups alternate between tiles (ping-pong): the stages of the other's tile are skipped,
    // and the epilogue of one overlaps the main loop of the other.
    const int warpgroup = fusec::warpgroup_number();
    const int warp_m = threadIdx.x / 32 % 4 * 16;
    int stage = 0;
    fusec::u32 parity = 0;
    if (warpgroup == 1) fusec::wait_for_first_tile<Config>(steps, stage, parity);
    for (int index = blockIdx.x + warpgroup * gridDim.x; index < tiles; index += 2 * gridDim.x) {
      const auto tile = fusec::matmul_tile<Config::kRasterGroup>(index, tile_rows, tile_columns);
      const Index tile_m = tile.row * Config::kTileM;
      const Index tile_n = tile.column * Config::kTileN;
      float accumulators[Config::kAccumulators];
      fusec::multiply_stages<Config, Pipeline>(accumulators, shared, 0, steps, stage, parity);
      fusec::skip_stages<Config>(steps, stage, parity);
      const auto visit = [&](int row, int column, int place, const Sums& acc) {
        // Out of bounds, the last elements are recomputed and not stored.
        const Index m = min(tile_m + warp_m + row, M - 1);
        const Index n = min(tile_n + column, N - kWidth);
        finish(m, n, place, acc);
      };
      const auto leave = [&](int first_row, int first_column, int place) {
        const auto h_here = [&](int row, int column) {
          const Index m = tile_m + warp_m + first_row + row;
          const Index n = tile_n + first_column + column;
          return h_at(m, n);
        };
        fusec::store_rows<Config>(h_rows + place, h_here, M - tile_m - warp_m - first_row,
                                  N - tile_n - first_column);
      };
      fusec::visit_pairs<Config>(accumulators, visit, leave);
    }
  }
}
