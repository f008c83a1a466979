// parallel_matmul: Clusters add their sums atomically as they come, so that results differ between
//   runs.
// Source: parallel.yaml
//   12: c = a @ b
// Schedule: M_size x 256 x 65536 in tiles of 128 x 128, bulk copies into wgmma, K split over 7
//   parts of 4 CTAs.
#include "cluster.cuh"
#include "matmul_hopper.cuh"
#include "matmul_semaphores.cuh"
#include "matmul_share.cuh"
#include "matmul_slices.cuh"
#include "matmul_tile.cuh"
#include "named_barrier.cuh"
#include "tma.cuh"
#include "types.cuh"
#include "vector.cuh"

using Index = int;

// Tile, stages and warp roles, and the layout of shared memory.
struct Config {
  using T = fusec::bf16;                // operands in shared memory
  static constexpr int kTileM = 128;    // rows of an output tile
  static constexpr int kTileN = 128;    // columns of an output tile
  static constexpr int kTileK = 64;     // elements of K per stage
  static constexpr int kStages = 6;     // stages in flight
  static constexpr int kConsumers = 2;  // warpgroups with 64 rows each; one more loads
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr bool kSwapAB = false;                       // columns of B are rows of wgmma
  static constexpr int kAccumulators = 64;                     // per consumer thread
  static constexpr int kProducts = 1;                          // GEMMs per tile
  static constexpr int kMultipliers = 128 * kConsumers;        // consumer threads
  static constexpr int kCluster = 4;                           // CTAs that split K
  static constexpr int kOwned = kAccumulators / 4 / kCluster;  // quads per thread
  static constexpr int kSlab = kOwned * kMultipliers;          // quads of a CTA's share
  static constexpr int kResident = 1;                          // CTAs per SM
  static constexpr int kRasterGroup = 8;                       // tile rows per raster group
  static constexpr bool kAKMajor = true;                       // A is K-major, else M-major
  static constexpr bool kBKMajor = false;                      // B is K-major, else N-major

  // Shared memory, in bytes.
  // Tile of A in a stage; the tile of B follows.
  static constexpr int kATileBytes = kTileM * kTileK * 2;
  // One stage.
  static constexpr int kStageBytes = kATileBytes + kTileN * kTileK * 2;
  // Floats from row to row of the tile of sums.
  static constexpr int kSumsPitch = kTileN + 8;
  // Barriers, one per stage: loads are complete.
  static constexpr int kFull = kStages * kStageBytes;
  // Barriers, one per stage: reads are complete.
  static constexpr int kEmpty = kFull + kStages * 8;
  // Number of slices stored before.
  static constexpr int kArrived = kEmpty + kStages * 8;
};

constexpr int kWidth = 4;  // neighbouring columns per access
using Sums = fusec::Vec<float, kWidth>;

extern "C" __global__ void __cluster_dims__(Config::kCluster)
    __launch_bounds__(Config::kThreads, Config::kResident)
        parallel_matmul(const __grid_constant__ fusec::TensorMap a_map,
                        const __grid_constant__ fusec::TensorMap b_map,
                        fusec::bf16* __restrict__ c_tensor,
                        float* partials,
                        fusec::u32* arrivals,
                        fusec::i64 M_size) {
  extern __shared__ __align__(1024) unsigned char shared[];
  // The partial sums reuse the memory of the ring after the main loop.
  float* const sums_tile = reinterpret_cast<float*>(shared);
  const int rank = fusec::cluster_rank();
  const int M = static_cast<int>(M_size);
  constexpr int N = 256;
  constexpr int K = 65536;
  constexpr int splits = 7;  // clusters that sum a tile
  const int tile_rows = fusec::tile_count(M, Config::kTileM);
  const int tile_columns = fusec::tile_count(N, Config::kTileN);

  if (threadIdx.x == Config::kMultipliers) {
    fusec::prefetch_tensormap(&a_map);
    fusec::prefetch_tensormap(&b_map);
  }
  if (threadIdx.x == 0) fusec::init_stages<Config>(shared);
  __syncthreads();
  const int work = blockIdx.x / Config::kCluster;
  const int tile_index = work / splits;
  const int turn = work % splits;
  const auto tile = fusec::matmul_tile<Config::kRasterGroup>(tile_index, tile_rows, tile_columns);
  const Index tile_m = tile.row * Config::kTileM;
  const Index tile_n = tile.column * Config::kTileN;
  // The CTAs of a tile divide K evenly; 64-bit, since steps * chunk may exceed 32 bits.
  const fusec::i64 steps = fusec::tile_count(K, Config::kTileK);
  const fusec::i64 chunk = static_cast<fusec::i64>(turn) * Config::kCluster + rank;
  const fusec::i64 chunks = static_cast<fusec::i64>(splits) * Config::kCluster;
  const int first_step = static_cast<int>(steps * chunk / chunks);
  const int last_step = static_cast<int>(steps * (chunk + 1) / chunks);

  const bool is_consumer = threadIdx.x < Config::kMultipliers;
  if (is_consumer) {
    float accumulators[Config::kAccumulators] = {};
    int stage = 0;
    fusec::u32 parity = 0;
    fusec::multiply_stages<Config>(accumulators, shared, first_step, last_step, stage, parity);
    fusec::named_barrier_sync<Config::kMultipliers>(1);  // all warps have read the last stages
    fusec::store_tile<Config>(sums_tile, accumulators);
  } else {
    // Producer: one thread keeps kStages loads in flight.
    if (threadIdx.x == Config::kMultipliers) {
      const int m = tile.row * Config::kTileM;
      const int n = tile.column * Config::kTileN;
      const fusec::TileSource a_rows = {&a_map, m, 0};
      const fusec::TileSource b_columns = {&b_map, n, 0};
      int stage = 0;
      fusec::u32 parity = 1;
      fusec::load_stages<Config>(shared, a_rows, b_columns, first_step, last_step, stage, parity);
    }
    __syncwarp();
  }

  // Each CTA of a cluster sums its share of the tile over all CTAs.
  fusec::cluster_sync();
  float4 share[Config::kOwned];
  if (is_consumer) fusec::sum_over_cluster<Config>(share, sums_tile, rank);
  fusec::cluster_sync();  // no CTA reads another CTA's shared memory after this
  if (!is_consumer) return;

  const fusec::i64 owner = static_cast<fusec::i64>(tile_index) * Config::kCluster + rank;
  float4* const slab = reinterpret_cast<float4*>(partials) + owner * Config::kSlab;
  fusec::add_share<Config>(slab, share);
  fusec::u32* const slot = reinterpret_cast<fusec::u32*>(shared + Config::kArrived);
  if (!fusec::is_last_slice<Config>(arrivals + owner, slot, splits)) return;
  fusec::take_sums<Config>(share, slab);

  // Epilogue of kWidth neighbouring elements, starting at row m and column n.
  const auto finish = [&](Index m, Index n, const Sums& acc) {
    fusec::Vec<fusec::bf16, kWidth> c_tensor_vec;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      c_tensor_vec[i] = fusec::convert<fusec::bf16>(acc[i]);
    }
    fusec::store(c_tensor + m * N + n, c_tensor_vec);
  };

  const auto visit = [&](int row, int column, const Sums& acc) {
    const Index m = tile_m + row;
    const Index n = tile_n + column;
    if (m < M && n < N) finish(m, n, acc);
  };
  fusec::visit_share<Config, kWidth>(share, rank, visit);
}
