// Producer warpgroup of a TMA + wgmma GEMM with small M that computes A on the fly (sm_90a). The
// first warp loads B into a ring of stages (matmul_hopper.cuh); each of the other kWriters warps
// computes A for every kWriters-th stage, so the reads of one warp overlap with the writes of
// another. Computed elements wait in registers until their stage is free. The ring has at least as
// many stages as writers, because a parity can only distinguish consecutive phases of a stage.
// `Config` is the struct at the top of the kernel.
#pragma once

#include "computed_rows.cuh"
#include "matmul_hopper.cuh"
#include "proxy.cuh"

namespace fusec {

// Lanes of a warp that arrive at the barrier of a written stage: one, or in debug builds all, since
// racecheck does not model the __syncwarp before a single lane's arrival.
#ifdef FUSEC_DEBUG
inline constexpr int kArrivingLanes = 32;
#else
inline constexpr int kArrivingLanes = 1;
#endif
inline constexpr int kFillers = 1 + kArrivingLanes;  // arrivals that complete a stage

// Warp number `writer` of kWriters: writes the rows of A for every kWriters-th K step. Rows past
// the end of A repeat the last row, whose results are never stored; columns past the end are zero,
// as in B, so that no Inf is multiplied by garbage. The code is branch-free: all inputs of a lane's
// elements are in flight before the first element is computed. A row of the tile has 64 elements of
// K, permuted in groups of eight by the 128-byte swizzle.
template <class Config, class A, class Index>
__device__ __forceinline__ void write_rows(unsigned char* shared, const A& a, Index depth,
                                           int first, int last, int writer) {
  constexpr int kInRow = Config::kTileK / kComputed;
  constexpr int kOwn = Config::kTileM * kInRow / 32;
  static_assert(Config::kStages >= Config::kWriters);
  Barrier* const full = reinterpret_cast<Barrier*>(shared + Config::kFull);
  Barrier* const empty = reinterpret_cast<Barrier*>(shared + Config::kEmpty);
  const int lane = threadIdx.x % 32;
  for (int number = writer; number < last - first; number += Config::kWriters) {
    const Index begin = static_cast<Index>(first + number) * Config::kTileK;
    Vec<u32, 4> made[kOwn];
#pragma unroll
    for (int own = 0; own < kOwn; ++own) {
      const Index m = min(a.position + own * (32 / kInRow) + lane / kInRow, a.extent - 1);
      const Index k = begin + lane % kInRow * kComputed;
      made[own] = words_of(a.make(m, min(k, depth - kComputed)));
#pragma unroll
      for (int i = 0; i < 4; ++i) made[own][i] = k < depth ? made[own][i] : 0;
    }
    const int stage = number % Config::kStages;
    const int turn = number / Config::kStages;
    empty[stage].wait(turn % 2 ^ 1);
    u32* const a_tile = reinterpret_cast<u32*>(shared + stage * Config::kStageBytes);
#pragma unroll
    for (int own = 0; own < kOwn; ++own) {
      const int row = own * (32 / kInRow) + lane / kInRow;
      store(a_tile + (row * kInRow + (lane % kInRow ^ row % kInRow)) * 4, made[own]);
    }
    fence_proxy_async_shared_cta();  // makes this lane's writes visible to wgmma
    __syncwarp();
    if (lane < kArrivingLanes) full[stage].arrive();
  }
}

// Producers, all threads of their warpgroup: K steps [first, last) of a tile.
template <class Config, class Pipeline, class A, class Index>
__device__ __forceinline__ void fill_stages(unsigned char* shared, const A& a, TileSource b,
                                            Index depth, int first, int last) {
  const int warp = static_cast<int>(threadIdx.x) / 32 - Config::kMultipliers / 32;
  if (warp == 0) {
    if (threadIdx.x % 32 == 0) {
      int stage = 0;
      u32 parity = 1;
      load_stages<Config, Pipeline>(shared, {}, b, first, last, stage, parity);
    }
    __syncwarp();
  } else {
    write_rows<Config>(shared, a, depth, first, last, warp - 1);
  }
}

}  // namespace fusec
