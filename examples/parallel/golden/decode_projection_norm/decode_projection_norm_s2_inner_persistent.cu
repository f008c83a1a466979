// decode_projection_norm_s2_inner_persistent: The last projection of attention for a token of each
//   sequence, the residual, and the norm of a row.
// Source: examples/parallel/decode_projection_norm.yaml
//   13: p = linear(a, w)
//   14: r = add(p, residual)
//   15: f = cast(r, f32)
//   16: v = mean(mul(f, f), dims=[1], keepdim=true)
//   17: y = cast(mul(mul(f, rsqrt(add(v, 1e-5))), scale), bf16)
// Schedule: 2 groups of 128 threads take a row each, of which 8 blocks have a part each, out of 2
//   that bulk copies bring to shared memory; accesses of 8 elements.
#include "cluster.cuh"
#include "combine.cuh"
#include "math.cuh"
#include "mbarrier.cuh"
#include "reduce_group.cuh"
#include "rounding.cuh"
#include "tma.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;     // elements per access
constexpr int kWarps = 4;   // warps of a group, which takes a row at a time
constexpr int kGroups = 2;  // groups
constexpr int kWorkers = 32 * kWarps * kGroups;
constexpr int kThreads = kWorkers + 32;    // one more warp brings rows
constexpr int kCluster = 8;                // blocks that share a row
constexpr int kStages = 2;                 // rows in shared memory
constexpr int kColumns = 8192;             // elements of a row
constexpr int kOwn = kColumns / kCluster;  // those of a block
constexpr int kPPeerViewsRing = 0;         // first byte of p_peer_views_ring
constexpr int kPPeerViews2Ring = 4096;     // first byte of p_peer_views_2_ring
constexpr int kPPeerViews3Ring = 8192;     // first byte of p_peer_views_3_ring
constexpr int kPPeerViews4Ring = 12288;    // first byte of p_peer_views_4_ring
constexpr int kResidualRing = 16384;       // first byte of residual_ring
constexpr int kScaleColumns = 20480;       // first byte of scale_columns
constexpr int kSum1Parts = 22528;          // first byte of sum_1_parts
constexpr int kBarriers = 23040;

extern "C" __global__ void __cluster_dims__(kCluster) __launch_bounds__(kThreads, 1)
    decode_projection_norm_s2_inner_persistent(const fusec::bf16* __restrict__ residual,
                                               const fusec::bf16* __restrict__ scale,
                                               const fusec::bf16* __restrict__ p_peer_views,
                                               const fusec::bf16* __restrict__ p_peer_views_2,
                                               const fusec::bf16* __restrict__ p_peer_views_3,
                                               const fusec::bf16* __restrict__ p_peer_views_4,
                                               fusec::bf16* __restrict__ r_,
                                               fusec::bf16* __restrict__ y,
                                               fusec::i64 B) {
  const int rows = B;
  extern __shared__ __align__(16) char shared_memory[];
  auto* p_peer_views_ring =
      reinterpret_cast<fusec::Vec<fusec::bf16, kVec>*>(shared_memory + kPPeerViewsRing);
  auto* p_peer_views_2_ring =
      reinterpret_cast<fusec::Vec<fusec::bf16, kVec>*>(shared_memory + kPPeerViews2Ring);
  auto* p_peer_views_3_ring =
      reinterpret_cast<fusec::Vec<fusec::bf16, kVec>*>(shared_memory + kPPeerViews3Ring);
  auto* p_peer_views_4_ring =
      reinterpret_cast<fusec::Vec<fusec::bf16, kVec>*>(shared_memory + kPPeerViews4Ring);
  auto* residual_ring =
      reinterpret_cast<fusec::Vec<fusec::bf16, kVec>*>(shared_memory + kResidualRing);
  auto* scale_columns =
      reinterpret_cast<fusec::Vec<fusec::bf16, kVec>*>(shared_memory + kScaleColumns);
  auto* sum_1_parts = reinterpret_cast<fusec::Vec<fusec::u32, 1>*>(shared_memory + kSum1Parts);
  auto* full = reinterpret_cast<fusec::Barrier*>(shared_memory + kBarriers);
  auto* empty = full + kStages;
  auto* columns = empty + kStages;
  auto* sum_1_arrived = columns + 1;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      full[i].init(1);
      empty[i].init(kWarps);
    }
    columns[0].init(1);
    for (int i = 0; i < 2 * kGroups; ++i) sum_1_arrived[i].init(1);
    fusec::fence_barrier_init();
  }
  const int rank = fusec::cluster_rank();
  fusec::cluster_sync();
  const int first = blockIdx.x / kCluster;
  const int step = gridDim.x / kCluster;

  if (threadIdx.x >= kWorkers) {
    // The producer: one thread keeps the rows of all slots on their way.
    if (threadIdx.x == kWorkers) {
      columns[0].arrive_expect_tx(kOwn * 2);
      fusec::bulk_load(scale_columns, scale + rank * kOwn, kOwn * 2, &columns[0]);
      int slot = 0;
      fusec::u32 parity = 1;
      for (int row = first; row < rows; row += step) {
        empty[slot].wait(parity);
        full[slot].arrive_expect_tx(kOwn * 2 + kOwn * 2 + kOwn * 2 + kOwn * 2 + kOwn * 2);
        fusec::bulk_load(p_peer_views_ring + slot * (kOwn / kVec),
                         p_peer_views + row * kColumns + rank * kOwn, kOwn * 2, &full[slot]);
        fusec::bulk_load(p_peer_views_2_ring + slot * (kOwn / kVec),
                         p_peer_views_2 + row * kColumns + rank * kOwn, kOwn * 2, &full[slot]);
        fusec::bulk_load(p_peer_views_3_ring + slot * (kOwn / kVec),
                         p_peer_views_3 + row * kColumns + rank * kOwn, kOwn * 2, &full[slot]);
        fusec::bulk_load(p_peer_views_4_ring + slot * (kOwn / kVec),
                         p_peer_views_4 + row * kColumns + rank * kOwn, kOwn * 2, &full[slot]);
        fusec::bulk_load(residual_ring + slot * (kOwn / kVec),
                         residual + row * kColumns + rank * kOwn, kOwn * 2, &full[slot]);
        slot = slot == kStages - 1 ? 0 : slot + 1;
        parity ^= slot == 0;
      }
    }
    __syncwarp();
  } else {
    const int group = threadIdx.x / (32 * kWarps);
    const int thread = threadIdx.x % (32 * kWarps);
    int slot = group;
    fusec::u32 parity = 0;
    int turn = 0;
    columns[0].wait(0);
    fusec::u32 turn_parity = 0;
    for (int row = first + group * step; row < rows; row += kGroups * step) {
      const auto* p_peer_views_row = p_peer_views_ring + slot * (kOwn / kVec);
      const auto* p_peer_views_2_row = p_peer_views_2_ring + slot * (kOwn / kVec);
      const auto* p_peer_views_3_row = p_peer_views_3_ring + slot * (kOwn / kVec);
      const auto* p_peer_views_4_row = p_peer_views_4_ring + slot * (kOwn / kVec);
      const auto* residual_row = residual_ring + slot * (kOwn / kVec);
      full[slot].wait(parity);

      float sum_1_part = fusec::Sum<float>::identity();
#pragma unroll 4
      for (int c = thread; c < kOwn / kVec; c += 32 * kWarps) {
        const int column = (rank * (kOwn / kVec) + c) * kVec;
        const auto p_peer_views_vec = p_peer_views_row[c];
        const auto p_peer_views_2_vec = p_peer_views_2_row[c];
        const auto p_peer_views_3_vec = p_peer_views_3_row[c];
        const auto p_peer_views_4_vec = p_peer_views_4_row[c];
        const auto residual_vec = residual_row[c];
        fusec::Vec<fusec::bf16, kVec> r_vec;
#pragma unroll
        for (int v = 0; v < kVec; ++v) {
          const float p_add =
              fusec::to_float(p_peer_views_vec[v]) + fusec::to_float(p_peer_views_2_vec[v]);
          const float p_add_3 = p_add + fusec::to_float(p_peer_views_3_vec[v]) +
                                fusec::to_float(p_peer_views_4_vec[v]);
          const float r_value = fusec::round_to<fusec::bf16>(fusec::round_to<fusec::bf16>(p_add_3) +
                                                             fusec::to_float(residual_vec[v]));
          sum_1_part += r_value * r_value;
          r_vec[v] = fusec::convert<fusec::bf16>(r_value);
        }
        fusec::store(r_ + row * kColumns + column, r_vec);
      }
      const float sum_1 = fusec::cluster_reduce<fusec::Sum<float>, kWarps, kCluster>(
          sum_1_part, sum_1_parts, sum_1_arrived, 2 * group + turn, turn_parity, rank);

      const float add_1 = fusec::divide(sum_1, static_cast<float>(kColumns)) + 1e-5f;
      const float rsqrt_1 = rsqrtf(add_1);
#pragma unroll 4
      for (int c = thread; c < kOwn / kVec; c += 32 * kWarps) {
        const int column = (rank * (kOwn / kVec) + c) * kVec;
        const auto p_peer_views_vec = p_peer_views_row[c];
        const auto p_peer_views_2_vec = p_peer_views_2_row[c];
        const auto p_peer_views_3_vec = p_peer_views_3_row[c];
        const auto p_peer_views_4_vec = p_peer_views_4_row[c];
        const auto residual_vec = residual_row[c];
        const auto scale_vec = scale_columns[c];
        fusec::Vec<fusec::bf16, kVec> y_vec;
#pragma unroll
        for (int v = 0; v < kVec; ++v) {
          const float p_add =
              fusec::to_float(p_peer_views_vec[v]) + fusec::to_float(p_peer_views_2_vec[v]);
          const float p_add_3 = p_add + fusec::to_float(p_peer_views_3_vec[v]) +
                                fusec::to_float(p_peer_views_4_vec[v]);
          const float r_value = fusec::round_to<fusec::bf16>(fusec::round_to<fusec::bf16>(p_add_3) +
                                                             fusec::to_float(residual_vec[v]));
          y_vec[v] = fusec::convert<fusec::bf16>(r_value * rsqrt_1 * fusec::to_float(scale_vec[v]));
        }
        fusec::store(y + row * kColumns + column, y_vec);
      }

      __syncwarp();
      if (threadIdx.x % 32 == 0) empty[slot].arrive();
      slot = slot + kGroups < kStages ? slot + kGroups : group;
      parity ^= slot == group;
      turn ^= 1;
      turn_parity ^= turn == 0;
    }
  }
  // No block ends while another one may still send to it.
  fusec::cluster_sync();
}
