// matmul_long_k_matmul: A small product with a very long inner dim, for split-K.
// Source: matmul_long_k.yaml
//   12: c = matmul(a, b)
// Schedule: M_size x 256 x 65536 in tiles of 128 x 128, bulk copies into wgmma, K split over 32
//   slices.
#include "cluster.cuh"
#include "matmul_hopper.cuh"
#include "matmul_slices.cuh"
#include "matmul_tile.cuh"
#include "overlap.cuh"
#include "tma.cuh"
#include "types.cuh"
#include "vector.cuh"

using Index = int;

// Tile, stages and roles of this kernel, and where its shared memory holds what.
struct Config {
  using T = fusec::bf16;                // of the operands in shared memory
  static constexpr int kTileM = 128;    // rows of an output tile
  static constexpr int kTileN = 128;    // columns of an output tile
  static constexpr int kTileK = 64;     // depth of a stage
  static constexpr int kStages = 7;     // stages in flight
  static constexpr int kConsumers = 2;  // warpgroups that multiply 64 rows each; one more loads
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr bool kSwapAB = false;                  // B's columns are the rows of wgmma
  static constexpr int kSumsOwn = 64;                     // of a thread that multiplies
  static constexpr int kPairRows = 2;                     // tile rows of a cluster of two CTAs
  static constexpr int kPairColumns = 1;                  // and tile columns; they share an operand
  static constexpr int kReaders = 16;                     // warps that read a stage
  static constexpr int kProducts = 1;                     // products that share a tile
  static constexpr int kMultipliers = 128 * kConsumers;   // threads that multiply
  static constexpr int kCluster = 1;                      // CTAs that sum along K in shared memory
  static constexpr int kOwned = kSumsOwn / 4 / kCluster;  // quads of a CTA's share, of a thread
  static constexpr int kSlab = kOwned * kMultipliers;     // of a CTA's share
  static constexpr int kResident = 1;                     // CTAs that an SM has room for
  static constexpr int kBand = 8;                         // tile rows walked together, for the L2
  static constexpr bool kAKMajor = true;                  // A is contiguous along K, else along M
  static constexpr bool kBKMajor = false;                 // B is contiguous along K, else along N

  // Shared memory, in bytes.
  // A's tile of a stage; B's follows.
  static constexpr int kATileBytes = kTileM * kTileK * 2;
  // A stage.
  static constexpr int kStageBytes = kATileBytes + kTileN * kTileK * 2;
  // Floats from row to row of the tile of sums.
  static constexpr int kSumsPitch = kTileN + 8;
  // Barriers, one per stage: its loads have landed.
  static constexpr int kFull = kStages * kStageBytes;
  // Barriers, one per stage: all have read it.
  static constexpr int kEmpty = kFull + kStages * 8;
};

// How stages are loaded and multiplied, where that is not the plain way.
struct Pipeline : fusec::PlainPipeline {
  static constexpr int kRows = Config::kPairRows;  // tiles of a cluster that share B
  static constexpr bool kOnceB = true;             // B is read once: it is the first to leave L2
};

constexpr int kWidth = 4;  // neighbouring columns of one access
using Sums = fusec::Vec<float, kWidth>;

extern "C" __global__ void __cluster_dims__(2)
    __launch_bounds__(Config::kThreads, Config::kResident)
        matmul_long_k_matmul(const __grid_constant__ fusec::TensorMap a_map,
                             const __grid_constant__ fusec::TensorMap b_map,
                             float* partials,
                             fusec::i64 M_size) {
  extern __shared__ __align__(1024) unsigned char shared[];
  // A cluster takes two neighbouring tiles, whose stages are loaded for both.
  const int rank = 0;
  const int place = fusec::cluster_rank();
  const int M = static_cast<int>(M_size);
  constexpr int N = 256;
  constexpr int K = 65536;
  constexpr int splits = 32;  // clusters that sum a tile
  const int tile_rows = fusec::tile_count(M, Config::kTileM);
  const int tile_columns = fusec::tile_count(N, Config::kTileN);

  if (threadIdx.x == Config::kMultipliers) {
    fusec::prefetch_tensormap(&a_map);
    fusec::prefetch_tensormap(&b_map);
  }
  if (threadIdx.x == 0) fusec::init_stages<Config, Config::kReaders>(shared);
  fusec::cluster_sync();
  const int work = blockIdx.x / 2;
  const int tile_index = work / splits;
  const int turn = work % splits;
  const auto tile =
      fusec::matmul_tile_of_pair<Config::kBand, Config::kPairRows, Config::kPairColumns>(
          tile_index, tile_rows, tile_columns, place);
  // Of all CTAs of the tile each has its part of K; in 64 bits, as steps * chunk may exceed 32.
  const fusec::i64 steps = fusec::tile_count(K, Config::kTileK);
  const fusec::i64 chunk = static_cast<fusec::i64>(turn) * Config::kCluster + rank;
  const fusec::i64 chunks = static_cast<fusec::i64>(splits) * Config::kCluster;
  const int first_step = static_cast<int>(steps * chunk / chunks);
  const int last_step = static_cast<int>(steps * (chunk + 1) / chunks);

  const bool is_consumer = threadIdx.x < Config::kMultipliers;
  if (is_consumer) {
    float sums[Config::kSumsOwn] = {};
    int stage = 0;
    fusec::u32 parity = 0;
    fusec::multiply_stages<Config, Pipeline>(sums, shared, first_step, last_step, stage, parity);
    fusec::let_next_kernel_start();  // which waits for this one's end
    const fusec::i64 owner = static_cast<fusec::i64>(tile_index) * 2 + place;
    float4* const slices = reinterpret_cast<float4*>(partials) + owner * splits * Config::kSlab;
    fusec::store_fragments<Config>(slices + turn * Config::kSlab, sums);
  } else {
    // The producer: one thread keeps kStages loads in flight.
    if (threadIdx.x == Config::kMultipliers) {
      const int m = tile.row * Config::kTileM;
      const int n = tile.column * Config::kTileN;
      const fusec::TileSource a_rows = {&a_map, m, 0};
      const fusec::TileSource b_columns = {&b_map, n, 0};
      int stage = 0;
      fusec::u32 parity = 1;
      fusec::load_stages<Config, Pipeline>(shared, a_rows, b_columns, first_step, last_step, stage,
                                           parity);
    }
    __syncwarp();
  }

  fusec::cluster_sync();  // no CTA releases another's stages from here on
}
