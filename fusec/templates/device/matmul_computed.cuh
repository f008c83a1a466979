// The producers of a TMA + wgmma product whose few rows of A are computed (sm_90a), a warpgroup:
// its first warp has B copied into a ring of stages (matmul_hopper.cuh), the others write A, of
// every kWriters-th stage each, so that one reads what elements are made of while others write.
// What is computed waits in registers for its stage to be free. A ring has as many stages as
// writers at least: a parity tells a stage's next turn from the last one, but not from the one
// after. `Config` is the struct at the top of a kernel.
#pragma once

#include "computed_rows.cuh"
#include "matmul_hopper.cuh"
#include "proxy.cuh"

namespace fusec {

// Lanes of a warp that say that all have written their part of a stage: in debug builds each does
// so for itself, since racecheck does not follow the warp's barrier in front of one lane's arrival.
#ifdef FUSEC_DEBUG
inline constexpr int kArrivingLanes = 32;
#else
inline constexpr int kArrivingLanes = 1;
#endif
inline constexpr int kFillers = 1 + kArrivingLanes;  // arrivals that fill a stage

// A warp, number `writer` of kWriters: writes the rows of A of every kWriters-th step. Rows beyond
// those of A are the last one, for sums that nobody stores; columns are zeros there as those of B
// are, which infinite ones must not meet. No branch is in the way: what all of a lane's elements are
// made of is on its way before the first one is. Row r of a tile has 64 elements of K, of which
// neighbouring eights change places as the 128-byte swizzle has it.
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
    fence_proxy_async_shared_cta();  // wgmma reads what each lane has written
    __syncwarp();
    if (lane < kArrivingLanes) full[stage].arrive();
  }
}

// The producers, all threads of their warpgroup: steps `first` to before `last` of a tile.
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
