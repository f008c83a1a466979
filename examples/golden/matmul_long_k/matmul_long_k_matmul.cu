// matmul_long_k_matmul: A small product with a very long inner dim, for split-K.
// Source: examples/matmul_long_k.yaml
//   12: c = matmul(a, b)
// Schedule: M_size x 256 x 65536 in tiles of 128 x 128, bulk copies into wgmma, K split over 3
//   turns of 8 CTAs.
#include "grid.cuh"
#include "matmul_hopper.cuh"
#include "matmul_tile.cuh"
#include "matmul_turns.cuh"
#include "mbarrier.cuh"
#include "proxy.cuh"
#include "tma.cuh"
#include "types.cuh"
#include "vector.cuh"
#include "wgmma.cuh"

using Index = int;
using T = fusec::bf16;

constexpr int kTileM = 128;    // rows of an output tile: 64 for each of two consumer warpgroups
constexpr int kTileN = 128;    // columns of an output tile
constexpr int kTileK = 64;     // depth of one stage: 128 bytes, the width of the swizzle
constexpr int kStages = 4;     // stages in flight
constexpr int kConsumers = 2;  // warpgroups that multiply; one more loads
constexpr int kMultipliers = 128 * kConsumers;
constexpr int kThreads = kMultipliers + 128;
constexpr int kCluster = 8;       // CTAs that sum along K in shared memory before a turn is taken
constexpr int kBand = 8;          // tile rows walked together, for the L2
constexpr int kWidth = 2;         // neighbouring columns of one access
constexpr bool kAKMajor = true;   // A is contiguous along K, else along M
constexpr bool kBKMajor = false;  // B is contiguous along K, else along N
constexpr int kABytes = kTileM * kTileK * sizeof(T);
constexpr int kStageBytes = kABytes + kTileN * kTileK * sizeof(T);

// Sums travel in the order in which the threads hold them: fragment f of a thread is four sums, two
// columns of two rows. Every CTA of a cluster owns the same share of its tile's fragments.
constexpr int kFragments = kTileN / 8;
constexpr int kOwned = kFragments / kCluster;
constexpr int kSlab = kOwned * kMultipliers;  // fragments of one share

extern "C" __global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    matmul_long_k_matmul(const __grid_constant__ fusec::TensorMap a_map,
                         const __grid_constant__ fusec::TensorMap b_map,
                         fusec::bf16* __restrict__ c_tensor,
                         float* partials,
                         fusec::u32* turns,
                         fusec::u32* tickets,
                         fusec::i64 M_size) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const int M = M_size;
  constexpr int N = 256;
  constexpr int K = 65536;
  constexpr int splits = 3;  // clusters that take turns at a tile
  float4* const sums_tile = reinterpret_cast<float4*>(shared + kStages * kStageBytes);
  fusec::Barrier* const full =
      reinterpret_cast<fusec::Barrier*>(sums_tile + kFragments * kMultipliers);
  fusec::Barrier* const empty = full + kStages;
  fusec::u32* const ticket_slot = reinterpret_cast<fusec::u32*>(empty + kStages);
  const int rank = fusec::cluster_rank();

  // CUDA promises no order of CTAs, so a cluster draws its work: whoever holds an earlier ticket
  // runs already, and waiting for it ends. The counter wraps to zero with the last ticket.
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      full[s].init(1);
      empty[s].init(4 * kConsumers);  // one arrival per warp
    }
    fusec::fence_barrier_init();
    if (rank == 0) *ticket_slot = fusec::take_ticket(tickets, gridDim.x / kCluster);
  }
  fusec::cluster_sync();
  const int ticket = fusec::cluster_load(ticket_slot, 0);
  const int tile_rows = fusec::tile_count(M, kTileM);
  const int tile_columns = fusec::tile_count(N, kTileN);
  const int tile_index = ticket / splits;
  const int turn = ticket % splits;
  const auto tile = fusec::matmul_tile<kBand>(tile_index, tile_rows, tile_columns);
  const Index tile_m = static_cast<Index>(tile.row) * kTileM;
  const Index tile_n = static_cast<Index>(tile.column) * kTileN;
  const fusec::i64 steps = fusec::tile_count(K, kTileK);
  const fusec::i64 chunk = static_cast<fusec::i64>(turn) * kCluster + rank;
  const fusec::i64 chunks = static_cast<fusec::i64>(splits) * kCluster;
  const int first_step = static_cast<int>(steps * chunk / chunks);
  const int last_step = static_cast<int>(steps * (chunk + 1) / chunks);

  const int warpgroup = threadIdx.x / 128;
  const int lane = threadIdx.x % 32;
  if (warpgroup == kConsumers) {
    // The producer: one thread keeps kStages loads in flight.
    if (threadIdx.x == kMultipliers) {
      int stage = 0;
      fusec::u32 parity = 1;
      for (int step = first_step; step < last_step; ++step) {
        const int depth = step * kTileK;
        unsigned char* const a_tile = shared + stage * kStageBytes;
        unsigned char* const b_tile = a_tile + kABytes;
        empty[stage].wait(parity);
        full[stage].arrive_expect_tx(kStageBytes);
        fusec::load_operand<kTileM, kAKMajor>(a_tile, &a_map, &full[stage], tile.row * kTileM,
                                              depth, 0);
        fusec::load_operand<kTileN, kBKMajor>(b_tile, &b_map, &full[stage], tile.column * kTileN,
                                              depth, 0);
        stage = stage + 1 == kStages ? 0 : stage + 1;
        parity ^= stage == 0;
      }
    }
    __syncwarp();
  } else {
    // The products of a stage run while the next one is awaited; it is handed back one step later.
    float sums[kTileN / 2] = {};
    int stage = 0;
    int previous = 0;
    fusec::u32 parity = 0;
    for (int step = first_step; step < last_step; ++step) {
      const unsigned char* const a_tile = shared + stage * kStageBytes;
      const unsigned char* const b_tile = a_tile + kABytes;
      full[stage].wait(parity);
      fusec::wgmma_fence();
      fusec::multiply_stage<T, kTileN, kAKMajor, kBKMajor>(
          sums, a_tile + warpgroup * fusec::kBlockBytes, b_tile);
      fusec::wgmma_commit();
      fusec::wgmma_wait<1>();
      if (step > first_step && lane == 0) empty[previous].arrive();
      previous = stage;
      stage = stage + 1 == kStages ? 0 : stage + 1;
      parity ^= stage == 0;
    }
    fusec::wgmma_wait<0>();
    fusec::wgmma_pin(sums);
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      sums_tile[f * kMultipliers + threadIdx.x] =
          make_float4(sums[4 * f], sums[4 * f + 1], sums[4 * f + 2], sums[4 * f + 3]);
    }
  }

  // The CTAs of a cluster sum their share of the tile over all ranks, in the order of the ranks.
  fusec::cluster_sync();
  float4 share[kOwned];
  float4* const owned = sums_tile + rank * kSlab;
  if (warpgroup < kConsumers) {
#pragma unroll
    for (int f = 0; f < kOwned; ++f) {
      share[f] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
      for (int peer = 0; peer < kCluster; ++peer) {
        const float4 part = fusec::cluster_load(&owned[f * kMultipliers + threadIdx.x], peer);
        share[f] = fusec::add(share[f], part);
      }
    }
  }
  fusec::cluster_sync();  // nobody reads another's shared memory from here on
  if (warpgroup == kConsumers) return;

  float4* const slab = reinterpret_cast<float4*>(partials) +
                       (static_cast<fusec::i64>(tile_index) * kCluster + rank) * kSlab;
  fusec::u32* const semaphore = turns + tile_index * kCluster + rank;
  if (turn < splits - 1) {
    // Not the last turn: the share goes to the work buffer by one bulk copy, and is added to what
    // lies there by all but the first. The turn is passed on only when the write is complete.
#pragma unroll
    for (int f = 0; f < kOwned; ++f) owned[f * kMultipliers + threadIdx.x] = share[f];
    fusec::fence_proxy_async_shared_cta();
    fusec::named_barrier_sync<kMultipliers>(1);
    if (threadIdx.x == 0) {
      if (turn == 0) {
        fusec::bulk_store(slab, owned, kSlab * sizeof(float4));
      } else {
        fusec::spin_until(semaphore, turn);
        fusec::fence_proxy_async();
        fusec::add_sums(slab, owned, kSlab * sizeof(float4));
      }
      fusec::commit_group();
      fusec::wait_group<0>();
      fusec::store_release(semaphore, turn + 1);
    }
    return;
  }

  // The last turn: load the sum of the others, add the registers, and leave the semaphore at zero
  // for the next launch.
  if (turn > 0) {
    if (threadIdx.x == 0) {
      fusec::spin_until(semaphore, turn);
      *semaphore = 0;
    }
    fusec::named_barrier_sync<kMultipliers>(1);
#pragma unroll
    for (int f = 0; f < kOwned; ++f) {
      share[f] = fusec::add(__ldcg(&slab[f * kMultipliers + threadIdx.x]), share[f]);
    }
  }

  // The epilogue of kWidth neighbouring columns of row m of a batch, from column n on.
  const auto finish = [&](Index batch, Index m, Index n, const fusec::Vec<float, kWidth>& acc) {
    fusec::Vec<fusec::bf16, kWidth> c_tensor_vec;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      c_tensor_vec[i] = fusec::convert<fusec::bf16>(acc[i]);
    }
    fusec::store(c_tensor + m * 256 + n, c_tensor_vec);
  };

  const int row = 64 * warpgroup + threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
  for (int f = 0; f < kOwned; ++f) {
    const float values[4] = {share[f].x, share[f].y, share[f].z, share[f].w};
#pragma unroll
    for (int c = 0; c < 4; c += kWidth) {
      const Index m = tile_m + row + c / 2 * 8;
      const Index n = tile_n + (rank * kOwned + f) * 8 + lane % 4 * 2 + c % 2;
      fusec::Vec<float, kWidth> acc;
#pragma unroll
      for (int e = 0; e < kWidth; ++e) acc[e] = values[c + e];
      if (m < M && n < N) finish(tile.batch, m, n, acc);
    }
  }
}
