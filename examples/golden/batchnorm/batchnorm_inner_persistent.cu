// batchnorm_inner_persistent: Batch norm over N, H and W of an NCHW tensor, with the statistics of
//   the batch.
// Source: batchnorm.yaml
//   11: xf = cast(x, f32)
//   12: var, mean = var_mean(xf, dims=[0, 2, 3], correction=0)
//   13: rstd = rsqrt(var + eps)
//   15: mean_c = broadcast(mean, [true, false, true, true])
//   16: rstd_c = broadcast(rstd, [true, false, true, true])
//   17: w_c = broadcast(w, [true, false, true, true])
//   18: b_c = broadcast(b, [true, false, true, true])
//   19: y = cast((xf - mean_c) * rstd_c * w_c + b_c, f16)
// Schedule: 3 groups of 256 threads take a row each, divided among 8 blocks, from 6 in shared
//   memory, filled by bulk copies; accesses of 8 elements.
#include "cluster.cuh"
#include "combine.cuh"
#include "mbarrier.cuh"
#include "reduce_group.cuh"
#include "tma.cuh"
#include "types.cuh"
#include "vector.cuh"

constexpr int kVec = 8;     // elements per access
constexpr int kWarps = 8;   // warps of a group, which processes a row at a time
constexpr int kGroups = 3;  // groups
constexpr int kWorkers = 32 * kWarps * kGroups;
constexpr int kThreads = kWorkers + 32;    // with the producer warp, which loads rows
constexpr int kCluster = 8;                // blocks that share a row
constexpr int kStages = 6;                 // rows in shared memory
constexpr int kColumns = 100352;           // elements of a row
constexpr int kOwn = kColumns / kCluster;  // elements of a row per block
constexpr int kPiece = 3136;               // contiguous elements per bulk copy
constexpr int kXRing = 0;                  // first byte of x_ring
constexpr int kVarSumParts = 150528;       // first byte of var_sum_parts
constexpr int kVarM2Parts = 152064;        // first byte of var_m2_parts
constexpr int kBarriers = 153600;

extern "C" __global__ void __cluster_dims__(kCluster) __launch_bounds__(kThreads, 1)
    batchnorm_inner_persistent(const fusec::f16* __restrict__ x,
                               const float* __restrict__ w,
                               const float* __restrict__ b,
                               float* __restrict__ mean,
                               float* __restrict__ rstd,
                               fusec::f16* __restrict__ y,
                               float eps) {
  const int rows = 64;
  extern __shared__ __align__(16) char shared_memory[];
  auto* x_ring = reinterpret_cast<fusec::Vec<fusec::f16, kVec>*>(shared_memory + kXRing);
  auto* var_sum_parts = reinterpret_cast<fusec::Vec<fusec::u32, 1>*>(shared_memory + kVarSumParts);
  auto* var_m2_parts = reinterpret_cast<fusec::Vec<fusec::u32, 1>*>(shared_memory + kVarM2Parts);
  auto* full = reinterpret_cast<fusec::Barrier*>(shared_memory + kBarriers);
  auto* empty = full + kStages;
  auto* var_sum_arrived = empty + kStages;
  auto* var_m2_arrived = var_sum_arrived + 2 * kGroups;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      full[i].init(1);
      empty[i].init(kWarps);
    }
    for (int i = 0; i < 2 * kGroups; ++i) var_sum_arrived[i].init(1);
    for (int i = 0; i < 2 * kGroups; ++i) var_m2_arrived[i].init(1);
    fusec::fence_barrier_init();
  }
  const int rank = fusec::cluster_rank();
  fusec::cluster_sync();
  const int first = blockIdx.x / kCluster;
  const int step = gridDim.x / kCluster;

  if (threadIdx.x >= kWorkers) {
    // Producer: one thread keeps the copies of all slots in flight.
    if (threadIdx.x == kWorkers) {
      int slot = 0;
      fusec::u32 parity = 1;
      for (int row = first; row < rows; row += step) {
        empty[slot].wait(parity);
        full[slot].arrive_expect_tx(kOwn * 2);
        for (int piece = 0; piece < kOwn / kPiece; ++piece) {
          const int at = (slot * kOwn + piece * kPiece) / kVec;
          fusec::bulk_load(x_ring + at,
                           x + rank * (4 * 64 * kPiece) + piece * (64 * kPiece) + row * kPiece,
                           kPiece * 2, &full[slot]);
        }
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
    fusec::u32 turn_parity = 0;
    for (int row = first + group * step; row < rows; row += kGroups * step) {
      const auto* x_row = x_ring + slot * (kOwn / kVec);
      full[slot].wait(parity);

      const float w_value = w[row];
      const float b_value = b[row];
      float var_sum_part = fusec::Sum<float>::identity();
#pragma unroll 4
      for (int c = thread; c < kOwn / kVec; c += 32 * kWarps) {
        const auto x_vec = x_row[c];
#pragma unroll
        for (int v = 0; v < kVec; ++v) {
          const float xf = fusec::to_float(x_vec[v]);
          var_sum_part += xf;
        }
      }
      const float var_sum = fusec::cluster_reduce<fusec::Sum<float>, kWarps, kCluster>(
          var_sum_part, var_sum_parts, var_sum_arrived, 2 * group + turn, turn_parity, rank);

      const float mean_value = var_sum * (1.0f / kColumns);
      if (thread == 0 && rank == 0) {
        mean[row] = mean_value;
      }
      float var_m2_part = fusec::Sum<float>::identity();
#pragma unroll 4
      for (int c = thread; c < kOwn / kVec; c += 32 * kWarps) {
        const auto x_vec = x_row[c];
#pragma unroll
        for (int v = 0; v < kVec; ++v) {
          const float xf = fusec::to_float(x_vec[v]);
          const float var_away = xf - mean_value;
          var_m2_part += var_away * var_away;
        }
      }
      const float var_m2 = fusec::cluster_reduce<fusec::Sum<float>, kWarps, kCluster>(
          var_m2_part, var_m2_parts, var_m2_arrived, 2 * group + turn, turn_parity, rank);

      const float rstd_value = rsqrtf(var_m2 * (1.0f / kColumns) + eps);
      if (thread == 0 && rank == 0) {
        rstd[row] = rstd_value;
      }
#pragma unroll 4
      for (int c = thread; c < kOwn / kVec; c += 32 * kWarps) {
        const int column = (rank * (kOwn / kVec) + c) * kVec;
        const auto x_vec = x_row[c];
        fusec::Vec<fusec::f16, kVec> y_vec;
        const int part_over_392 = column / kVec / 392;
        const int part_mod_392 = column / kVec % 392;
#pragma unroll
        for (int v = 0; v < kVec; ++v) {
          const float xf = fusec::to_float(x_vec[v]);
          y_vec[v] = fusec::convert<fusec::f16>((xf - mean_value) * rstd_value * w_value + b_value);
        }
        fusec::store(y + part_over_392 * 200704 + row * 3136 + part_mod_392 * kVec, y_vec);
      }

      __syncwarp();
      if (threadIdx.x % 32 == 0) empty[slot].arrive();
      slot = slot + kGroups < kStages ? slot + kGroups : group;
      parity ^= slot == group;
      turn ^= 1;
      turn_parity ^= turn == 0;
    }
  }
  // No block exits while another one may still send to it.
  fusec::cluster_sync();
}
