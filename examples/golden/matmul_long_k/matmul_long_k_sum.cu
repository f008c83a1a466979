// matmul_long_k_sum: A small product with a very long inner dim, for split-K.
// Source: matmul_long_k.yaml
//   12: c = matmul(a, b)
// Schedule: M_size x 256 x 65536 in tiles of 128 x 128, bulk copies into wgmma, K split over 32
//   slices.
#include "matmul_share.cuh"
#include "matmul_slices.cuh"
#include "matmul_tile.cuh"
#include "overlap.cuh"
#include "types.cuh"
#include "vector.cuh"

using Index = int;

// Tile, stages and warp roles.
struct Config {
  using T = fusec::bf16;                // operands in shared memory
  static constexpr int kTileM = 128;    // rows of an output tile
  static constexpr int kTileN = 128;    // columns of an output tile
  static constexpr int kTileK = 64;     // elements of K per stage
  static constexpr int kStages = 7;     // stages in flight
  static constexpr int kConsumers = 2;  // warpgroups with 64 rows each; one more loads
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr bool kSwapAB = false;                       // columns of B are rows of wgmma
  static constexpr int kAccumulators = 64;                     // per consumer thread
  static constexpr int kClusterM = 2;                          // tile rows of a cluster
  static constexpr int kClusterN = 1;                          // tile columns of a cluster
  static constexpr int kReaders = 16;                          // warps that read a stage
  static constexpr int kProducts = 1;                          // GEMMs per tile
  static constexpr int kMultipliers = 128 * kConsumers;        // consumer threads
  static constexpr int kCluster = 1;                           // CTAs that split K
  static constexpr int kOwned = kAccumulators / 4 / kCluster;  // quads per thread
  static constexpr int kSlab = kOwned * kMultipliers;          // quads of a CTA's share
  static constexpr int kResident = 1;                          // CTAs per SM
  static constexpr int kGroups = 4;                            // thread groups of a block
  static constexpr int kEach = 8;                              // slices per group, at most
  static constexpr int kQuads = kMultipliers / kGroups;        // quads per block
  static constexpr int kRuns = kSlab / kQuads;                 // blocks per CTA's share
  static constexpr int kRasterGroup = 8;                       // tile rows per raster group
  static constexpr bool kAKMajor = true;                       // A is K-major, else M-major
  static constexpr bool kBKMajor = false;                      // B is K-major, else N-major
};

constexpr int kWidth = 4;  // neighbouring columns per access
using Sums = fusec::Vec<float, kWidth>;

extern "C" __global__ void __launch_bounds__(Config::kMultipliers)
    matmul_long_k_sum(fusec::bf16* __restrict__ c_tensor, float* partials, fusec::i64 M_size) {
  fusec::wait_for_kernels_before();
  const int M = static_cast<int>(M_size);
  constexpr int N = 256;
  constexpr int splits = 32;  // clusters that sum a tile
  const int tile_rows = fusec::tile_count(M, Config::kTileM);
  const int tile_columns = fusec::tile_count(N, Config::kTileN);
  // A block sums adjacent quads over the slices of a tile's clusters.
  const int owner = blockIdx.x / Config::kRuns;
  const int part = blockIdx.x % Config::kRuns * Config::kQuads + threadIdx.x % Config::kQuads;
  const auto tile = fusec::cluster_tile<Config::kRasterGroup, Config::kClusterM, Config::kClusterN>(
      owner / 2, tile_rows, tile_columns, owner % 2);
  const Index tile_m = tile.row * Config::kTileM;
  const Index tile_n = tile.column * Config::kTileN;
  const float4* const slices = reinterpret_cast<const float4*>(partials) +
                               static_cast<fusec::i64>(owner) * splits * Config::kSlab;
  const float4 share = fusec::sum_slices_in_groups<Config>(slices + part, splits);
  if (threadIdx.x >= Config::kQuads) return;

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
  fusec::visit_quad<kWidth>(fusec::neighbours_of_fragment(share),
                            fusec::quad_of_fragment<Config>(part), visit);
}
