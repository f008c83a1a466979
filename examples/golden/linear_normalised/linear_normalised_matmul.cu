// linear_normalised_matmul: A linear layer of a few tokens that are normalised by known statistics,
//   in one kernel.
// Source: linear_normalised.yaml
//   16: scaled = (cast(x, f32) - mean) * rstd * cast(gamma, f32)
//   17: normalised = cast(scaled + cast(beta, f32), bf16)
//   18: y = linear(normalised, w)
// Schedule: M_size x 1024 x 1024 in tiles of 16 x 128, bulk copies into wgmma, K split over 2 CTAs.
#include "cluster.cuh"
#include "computed_rows.cuh"
#include "matmul_computed.cuh"
#include "matmul_hopper.cuh"
#include "matmul_semaphores.cuh"
#include "matmul_share.cuh"
#include "matmul_tile.cuh"
#include "named_barrier.cuh"
#include "tma.cuh"
#include "types.cuh"
#include "vector.cuh"

using Index = int;

// Tile, stages and warp roles, and the layout of shared memory.
struct Config {
  using T = fusec::bf16;                // operands in shared memory
  static constexpr int kTileM = 16;     // rows of an output tile
  static constexpr int kTileN = 128;    // columns of an output tile
  static constexpr int kTileK = 64;     // elements of K per stage
  static constexpr int kStages = 12;    // stages in flight
  static constexpr int kConsumers = 2;  // warpgroups with 64 rows each; one more loads
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr bool kSwapAB = true;                        // columns of B are rows of wgmma
  static constexpr int kAccumulators = 8;                      // per consumer thread
  static constexpr int kReaders = 8;                           // warps that read a stage
  static constexpr int kWriters = 3;                           // warps that compute A
  static constexpr int kProducts = 1;                          // GEMMs per tile
  static constexpr int kMultipliers = 128 * kConsumers;        // consumer threads
  static constexpr int kCluster = 2;                           // CTAs that split K
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
  static constexpr int kStageBytes = kATileBytes + kTileN * kTileK * 2;
  // Floats from row to row of the tile of sums.
  static constexpr int kSumsPitch = kTileN + 4;
  // Barriers, one per stage: loads are complete.
  static constexpr int kFull = kStages * kStageBytes;
  // Barriers, one per stage: reads are complete.
  static constexpr int kEmpty = kFull + kStages * 8;
};

// Overrides of how stages are loaded and multiplied.
struct Pipeline : fusec::PlainPipeline {
  static constexpr int kPanels = 0;  // A is computed
};

constexpr int kWidth = 4;  // neighbouring columns per access
using Sums = fusec::Vec<float, kWidth>;

extern "C" __global__ void __cluster_dims__(Config::kCluster)
    __launch_bounds__(Config::kThreads, Config::kResident)
        linear_normalised_matmul(const __grid_constant__ fusec::TensorMap w_map,
                                 const fusec::bf16* __restrict__ x,
                                 const float* __restrict__ mean,
                                 const float* __restrict__ rstd,
                                 const fusec::bf16* __restrict__ gamma,
                                 const fusec::bf16* __restrict__ beta,
                                 fusec::bf16* __restrict__ y,
                                 fusec::i64 M_size) {
  extern __shared__ __align__(1024) unsigned char shared[];
  // The partial sums reuse the memory of the ring after the main loop.
  float* const sums_tile = reinterpret_cast<float*>(shared);
  const int rank = fusec::cluster_rank();
  const int M = static_cast<int>(M_size);
  constexpr int N = 1024;
  constexpr int K = 1024;
  constexpr int splits = 1;  // clusters that sum a tile
  const int tile_rows = fusec::tile_count(M, Config::kTileM);
  const int tile_columns = fusec::tile_count(N, Config::kTileN);

  if (threadIdx.x == Config::kMultipliers) {
    fusec::prefetch_tensormap(&w_map);
  }
  if (threadIdx.x == 0) fusec::init_stages<Config, Config::kReaders, fusec::kFillers>(shared);
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
    fusec::multiply_stages<Config, Pipeline>(accumulators, shared, first_step, last_step, stage,
                                             parity);
    fusec::named_barrier_sync<Config::kMultipliers>(1);  // all warps have read the last stages
    fusec::store_tile<Config>(sums_tile, accumulators);
  } else {
    // Producers: one thread loads B, warps compute the rows of A.
    // Computes neighbouring elements of row m of normalised, starting at column k.
    const auto a_row = [&](Index m, Index k) {
      const float mean_value = mean[m];
      const float rstd_value = rstd[m];
      const auto x_vec = fusec::load_readonly<fusec::kComputed>(x + m * 1024 + k);
      const auto gamma_vec = fusec::load_readonly<fusec::kComputed>(gamma + k);
      const auto beta_vec = fusec::load_readonly<fusec::kComputed>(beta + k);
      fusec::Vec<Config::T, fusec::kComputed> made;
#pragma unroll
      for (int i = 0; i < fusec::kComputed; ++i) {
        const float scaled =
            (fusec::to_float(x_vec[i]) - mean_value) * rstd_value * fusec::to_float(gamma_vec[i]);
        made[i] = fusec::convert<fusec::bf16>(scaled + fusec::to_float(beta_vec[i]));
      }
      return made;
    };
    const auto a_part = fusec::computed_rows(a_row, tile_m, M);
    const int n = tile.column * Config::kTileN;
    const fusec::TileSource b_columns = {&w_map, n, 0};
    fusec::fill_stages<Config, Pipeline>(shared, a_part, b_columns, K, first_step, last_step);
  }

  // Each CTA of a cluster sums its share of the tile over all CTAs.
  fusec::cluster_sync();
  float4 share[Config::kOwned];
  if (is_consumer) fusec::sum_over_cluster<Config>(share, sums_tile, rank);
  fusec::cluster_sync();  // no CTA reads another CTA's shared memory after this
  if (!is_consumer) return;

  // Epilogue of kWidth neighbouring elements, starting at row m and column n.
  const auto finish = [&](Index m, Index n, const Sums& acc) {
    fusec::Vec<fusec::bf16, kWidth> y_vec;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      y_vec[i] = fusec::convert<fusec::bf16>(acc[i]);
    }
    fusec::store(y + m * N + n, y_vec);
  };

  const auto visit = [&](int row, int column, const Sums& acc) {
    const Index m = tile_m + row;
    const Index n = tile_n + column;
    if (m < M && n < N) finish(m, n, acc);
  };
  fusec::visit_share<Config, kWidth>(share, rank, visit);
}
