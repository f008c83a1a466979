// stream_k_matmul: The steps along K of all tiles are divided evenly among the SMs; two add up a
//   tile.
// Source: stream_k.yaml
//   9: y = linear(x, cast(w, bf16) * scale)
// Schedule: 256 x 20480 x 8192 in tiles of 256 x 128, bulk copies into wgmma, K split over ranges
//   of all tiles' steps, one for each CTA.
#include "block_scales.cuh"
#include "matmul_converted.cuh"
#include "matmul_hopper.cuh"
#include "matmul_semaphores.cuh"
#include "matmul_share.cuh"
#include "matmul_stream_k.cuh"
#include "matmul_tile.cuh"
#include "named_barrier.cuh"
#include "tma.cuh"
#include "types.cuh"
#include "vector.cuh"
#include "weights.cuh"
#include "wgmma.cuh"

using Index = int;

// Tile, stages and warp roles, and the layout of shared memory.
struct Config {
  using T = fusec::bf16;                   // operands in shared memory
  static constexpr int kTileM = 256;       // rows of an output tile
  static constexpr int kTileN = 128;       // columns of an output tile
  static constexpr int kTileK = 64;        // elements of K per stage
  using W = fusec::i8;                     // elements of B in memory
  using Codes = fusec::Bytes<T>;           // their conversion to 16-bit floats
  static constexpr bool kScaled = false;   // scales per group of elements of K
  static constexpr bool kLowered = false;  // zero points per group
  static constexpr int kGroup = 128;       // elements of K per group
  static constexpr int kStages = 5;        // stages in flight
  static constexpr int kConsumers = 2;     // warpgroups with 64 rows each; one more loads
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr bool kSwapAB = true;                        // columns of B are rows of wgmma
  static constexpr int kAccumulators = 128;                    // per consumer thread
  static constexpr int kProducerRegisters = 40;                // per producer thread
  static constexpr int kConsumerRegisters = 232;               // per consumer thread
  static constexpr int kProducts = 1;                          // GEMMs per tile
  static constexpr int kMultipliers = 128 * kConsumers;        // consumer threads
  static constexpr int kCluster = 1;                           // CTAs that split K
  static constexpr int kOwned = kAccumulators / 4 / kCluster;  // quads per thread
  static constexpr int kSlab = kOwned * kMultipliers;          // quads of a CTA's share
  static constexpr int kResident = 1;                          // CTAs per SM
  static constexpr int kRasterGroup = 8;                       // tile rows per raster group
  static constexpr bool kAKMajor = true;                       // A is K-major, else M-major
  static constexpr bool kBKMajor = true;                       // B is K-major, else N-major

  // Shared memory, in bytes.
  // Tile of A in a stage; the tile of B follows.
  static constexpr int kATileBytes = kTileM * kTileK * 2;
  // One stage.
  static constexpr int kStageBytes = kATileBytes + kTileN * kTileK;
  // Floats from row to row of the tile of sums.
  static constexpr int kSumsPitch = kTileN + 4;
  // Barriers, one per stage: loads are complete.
  static constexpr int kFull = kStages * kStageBytes;
  // Barriers, one per stage: reads are complete.
  static constexpr int kEmpty = kFull + kStages * 8;
  // Number of slices stored before.
  static constexpr int kArrived = kEmpty + kStages * 8;
};

// Overrides of how stages are loaded and multiplied.
struct Pipeline : fusec::PlainPipeline {
  static constexpr bool kOnceB = true;  // B is read only once: L2 evict-first
};

constexpr int kWidth = 4;  // neighbouring columns per access
using Sums = fusec::Vec<float, kWidth>;

extern "C" __global__ void __launch_bounds__(Config::kThreads, 1)
    stream_k_matmul(const __grid_constant__ fusec::TensorMap x_map,
                    const __grid_constant__ fusec::TensorMap w_map,
                    const fusec::bf16* __restrict__ scale,
                    fusec::bf16* __restrict__ y,
                    float* partials,
                    fusec::u32* arrivals) {
  extern __shared__ __align__(1024) unsigned char shared[];
  constexpr int M = 256;
  constexpr int N = 20480;
  constexpr int K = 8192;
  const int tile_rows = fusec::tile_count(M, Config::kTileM);
  const int tile_columns = fusec::tile_count(N, Config::kTileN);

  if (threadIdx.x == Config::kMultipliers) {
    fusec::prefetch_tensormap(&x_map);
    fusec::prefetch_tensormap(&w_map);
  }
  if (threadIdx.x == 0) fusec::init_stages<Config>(shared);
  __syncthreads();
  const int steps = fusec::tile_count(K, Config::kTileK);
  const auto range = fusec::step_range(tile_rows * tile_columns, steps);

  if (threadIdx.x >= Config::kMultipliers) {
    fusec::dealloc_registers<Config::kProducerRegisters>();
    if (threadIdx.x < Config::kMultipliers + 32) {
      // Producer: one thread keeps kStages loads in flight within a part.
      int stage = 0;
      fusec::u32 parity = 1;
      for (int at = range.begin; at < range.end;) {
        const auto part = range.part(at);
        const auto tile =
            fusec::matmul_tile<Config::kRasterGroup>(part.tile, tile_rows, tile_columns);
        if (at > range.begin) fusec::wait_for_ring<Config>();
        at += part.last - part.first;
        if (threadIdx.x % 32 == 0) {
          const int m = tile.row * Config::kTileM;
          const int n = tile.column * Config::kTileN;
          const fusec::TileSource a_rows = {&x_map, m, 0};
          const fusec::TileSource b_columns = {&w_map, n, 0};
          fusec::load_stages<Config, Pipeline>(shared, a_rows, b_columns, part.first, part.last,
                                               stage, parity);
        }
        __syncwarp();
      }
    }
    return;
  }

  fusec::alloc_registers<Config::kConsumerRegisters>();
  int stage = 0;
  fusec::u32 parity = 0;
  for (int at = range.begin; at < range.end;) {
    const auto part = range.part(at);
    const auto tile = fusec::matmul_tile<Config::kRasterGroup>(part.tile, tile_rows, tile_columns);
    at += part.last - part.first;
    const Index tile_m = tile.row * Config::kTileM;
    const Index tile_n = tile.column * Config::kTileN;
    float accumulators[Config::kAccumulators] = {};
    fusec::multiply_converted<Config, Pipeline>(accumulators, shared, part.first, part.last, stage,
                                                parity, fusec::Unscaled{}, fusec::Unscaled{});
    // The partial sums reuse the memory of the ring after the main loop.
    float* const sums_tile = reinterpret_cast<float*>(shared) + fusec::unknown_zero();
    fusec::named_barrier_sync<Config::kMultipliers>(1);  // all warps have read the last stages
    fusec::store_tile<Config>(sums_tile, accumulators);
    fusec::named_barrier_sync<Config::kMultipliers>(1);  // all partial sums are in the tile
    float4 share[Config::kOwned];
    fusec::read_tile<Config>(share, sums_tile);
    if (at < range.end) fusec::free_ring<Config>();
    bool is_mine = part.is_whole(steps);
    if (!is_mine) {
      float4* const slices = reinterpret_cast<float4*>(partials) +
                             static_cast<fusec::i64>(part.border()) * 2 * Config::kSlab;
      fusec::u32* const slot = reinterpret_cast<fusec::u32*>(shared + Config::kArrived);
      is_mine =
          fusec::is_second<Config>(share, slices, arrivals + part.border(), slot, part.number());
    }
    if (is_mine) {
      // Epilogue of kWidth neighbouring elements, starting at row m and column n.
      const auto finish = [&](Index m, Index n, const Sums& acc) {
        const auto scale_vec = fusec::load_readonly<kWidth>(scale + n);
        fusec::Vec<fusec::bf16, kWidth> y_vec;
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          y_vec[i] = fusec::convert<fusec::bf16>(acc[i] * fusec::to_float(scale_vec[i]));
        }
        fusec::store(y + m * N + n, y_vec);
      };

      const auto visit = [&](int row, int column, const Sums& acc) {
        const Index m = tile_m + row;
        const Index n = tile_n + column;
        if (m < M && n < N) finish(m, n, acc);
      };
      fusec::visit_share<Config, kWidth>(share, 0, visit);
    }
  }
}
