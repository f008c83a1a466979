// The main loop of a matrix product whose B is integers of 8 or 4 bits and whose A is halves, beside
// that of matmul_hopper.cuh: the same ring, whose stages are 128 or 64 elements of K deep. Operands
// are swapped: B's columns are the rows of wgmma, from registers. Each thread makes halves of what
// its rows have in shared memory, so that nothing is written there but by copies. A lies in panels of
// 64 elements of K; it is K-major, B is not of need.
#pragma once

#include "block_scales.cuh"
#include "matmul_hopper.cuh"
#include "weights.cuh"
#include "wgmma_converted.cuh"

namespace fusec {

// Groups of elements of K that a stage has, or has a part of.
template <class Config>
inline constexpr int kStageGroups =
    Config::kGroup < Config::kTileK ? Config::kTileK / Config::kGroup : 1;

// A thread: what its two rows of wgmma are lowered and multiplied by in a stage, each twice.
template <class Config>
struct StageFactors {
  u32 scales[kStageGroups<Config>][2];
  u32 zeros[kStageGroups<Config>][2];
};

// The same as it lies in memory: nobody waits for it before a stage needs it.
template <class Config>
struct LoadedFactors {
  static constexpr int kRowDistance = Config::kBKMajor ? 8 : 1;
  u32 scales[kStageGroups<Config>][2];
  u32 zeros[kStageGroups<Config>][2];

  template <class Scales, class Zeros>
  __device__ __forceinline__ void load(const Scales& of_scales, const Zeros& of_zeros, int row,
                                       int step) {
#pragma unroll
    for (int i = 0; i < 2 * kStageGroups<Config>; ++i) {
      const int group = step * Config::kTileK / Config::kGroup + i / 2;
      const int own = row + i % 2 * kRowDistance;
      if constexpr (Config::kScaled) scales[i / 2][i % 2] = of_scales.bits(own, group);
      if constexpr (Config::kLowered) zeros[i / 2][i % 2] = of_zeros.bits(own, group);
    }
  }

  template <class Zeros>
  __device__ __forceinline__ StageFactors<Config> factors(const Zeros& of_zeros, int row,
                                                          int step) const {
    StageFactors<Config> result = {};
#pragma unroll
    for (int i = 0; i < 2 * kStageGroups<Config>; ++i) {
      const int group = step * Config::kTileK / Config::kGroup + i / 2;
      const int own = row + i % 2 * kRowDistance;
      if constexpr (Config::kScaled) {
        result.scales[i / 2][i % 2] = scales[i / 2][i % 2] * 0x10001u;
      }
      if constexpr (Config::kLowered) {
        result.zeros[i / 2][i % 2] =
            of_zeros.template pair_of<typename Config::T>(zeros[i / 2][i % 2], own, group);
      }
    }
    return result;
  }
};

// The warps beside the one that loads: what a CTA's steps are lowered and multiplied by is fetched into
// L2. Across K each stage has lines of its own, for which memory would be waited for.
template <class Config, class Scales, class Zeros>
__device__ __forceinline__ void prefetch_factors(int first, int last, const Scales& scales,
                                                 const Zeros& zeros) {
  constexpr int kOthers = Config::kThreads - Config::kMultipliers - 32;
  const int own = static_cast<int>(threadIdx.x) - Config::kMultipliers - 32;
  const int begin = first * Config::kTileK / Config::kGroup;
  const int end = (last * Config::kTileK + Config::kGroup - 1) / Config::kGroup;
  if constexpr (Config::kScaled) {
    scales.template prefetch<Config::kTileN>(begin, end, own, kOthers);
  }
  if constexpr (Config::kLowered) {
    zeros.template prefetch<Config::kTileN>(begin, end, own, kOthers);
  }
}

// A thread: two neighbours along K of one of its rows, of 16 elements of K from `depth` on of a stage,
// the first half of them or the second. tile: of B, swizzled, a row of which has the bytes of a stage
// along K, and 128 across it, or 64 where they are half as many. Along K its rows are `row` and the
// eighth after it; across K `row`, which is even, and the next.
template <class Config>
__device__ __forceinline__ u32 widen_neighbours(const unsigned char* tile, int row, int which,
                                                int depth, int half) {
  using Codes = typename Config::Codes;
  const int lane = threadIdx.x % 32;
  if constexpr (Config::kBKMajor) {
    constexpr int kPitch = Config::kTileK / Codes::kNeighbours;
    const int at = depth / Codes::kNeighbours;
    const int chunk = at / 16 ^ (lane / (4 * (128 / kPitch)));
    const int within = at % 16 + (half * 8 + lane % 4 * 2) / Codes::kNeighbours;
    return Codes::neighbours(tile + (row + which * 8) * kPitch + chunk * 16 + within);
  } else if constexpr (Config::kPaired) {
    const int line = (depth + half * 8) / 2 + lane % 4;  // of 128 bytes: two rows of 64
    const int chunk = row / 32 ^ line % 4;
    const unsigned char* const first = tile + line * 128 + chunk * 16 + row / 2 % 16;
    return Codes::across(first[0], first[64], which);
  } else if constexpr (Codes::kNeighbours == 2) {
    const int line = depth / 2 + half * 4 + lane % 4;
    const int chunk = row / 16 ^ line % 8;
    return Codes::neighbours(tile + line * 128 + chunk * 16 + row % 16 + which);
  } else {
    const int line = depth + half * 8 + lane % 4 * 2;
    const int chunk = row / 16 ^ line % 8;
    const int next = row / 16 ^ (line + 1) % 8;
    const unsigned char* const first = tile + line * 128 + row % 16;
    return Codes::across(*reinterpret_cast<const u16*>(first + chunk * 16),
                         *reinterpret_cast<const u16*>(first + 128 + next * 16), which);
  }
}

// Steps of 16 elements of K of a piece, half of a stage.
template <class Config>
inline constexpr int kPieceSteps = Config::kTileK / 32;

// A thread: the fragments of the kPiece-th half of a stage.
template <class Config, int kPiece>
__device__ __forceinline__ void widen_fragments(u32 (&a)[kPieceSteps<Config>][4],
                                                const unsigned char* tile, int row,
                                                const StageFactors<Config>& factors) {
#pragma unroll
  for (int step = 0; step < kPieceSteps<Config>; ++step) {
    const int depth = (kPiece * kPieceSteps<Config> + step) * 16;
    const int group = depth % Config::kTileK / Config::kGroup;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 pair = widen_neighbours<Config>(tile, row, i % 2, depth, i / 2);
      a[step][i] =
          weigh_pair<Config>(pair, factors.zeros[group][i % 2], factors.scales[group][i % 2]);
    }
  }
}

// One warpgroup: sums += the products of 64 of B's columns, all of A's rows and the kPiece-th half of
// a stage; without `adds` they begin as 0. Asynchronous: between wgmma_fence and wgmma_commit.
template <class Config, int kPiece>
__device__ __forceinline__ void multiply_converted_piece(float (&sums)[Config::kSumsOwn],
                                                         const u32 (&a)[kPieceSteps<Config>][4],
                                                         const unsigned char* panels, int adds) {
  constexpr int kFirst = kPiece * kPieceSteps<Config>;
  const unsigned char* const panel = panels + kFirst / 4 * (Config::kTileM * 128);
#pragma unroll
  for (int step = 0; step < kPieceSteps<Config>; ++step) {
    wgmma_converted<Config::kTileM, typename Config::T>(
        sums, a[step], operand_descriptor<true>(panel, kFirst % 4 + step), step > 0 ? 1 : adds);
  }
}

// A consumer, all threads of its warpgroup: sums += the products of the same steps, as
// multiply_stages does. The fragments of one piece of a stage are made while the products of
// another run; a stage is handed back when those of its last piece have ended.
template <class Config, class Pipeline = PlainPipeline, class Scales, class Zeros>
__device__ __forceinline__ void multiply_converted(float (&sums)[Config::kSumsOwn],
                                                   unsigned char* shared, int first, int last,
                                                   int& stage, u32& parity, const Scales& scales,
                                                   const Zeros& zeros) {
  constexpr int kRows = Pipeline::kRows;
  constexpr int kColumns = Pipeline::kColumns;
  static_assert(Config::kTileK == 128 || Config::kTileK == 64);
  // Stages whose factors are on their way, as registers are left for.
  constexpr bool kFew = Config::kResident == 1 && kStageGroups<Config> * Config::kTileM <= 256;
  constexpr int kAhead = kStageGroups<Config> == 1 || kFew ? 2 : 1;
  Barrier* const full = reinterpret_cast<Barrier*>(shared + Config::kFull);
  Barrier* const empty = reinterpret_cast<Barrier*>(shared + Config::kEmpty);
  const int lane = threadIdx.x % 32;
  const int row = warpgroup_number() * 64 + threadIdx.x / 32 % 4 * 16 +
                  lane / 4 * (Config::kBKMajor ? 1 : 2);
  u32 even[kPieceSteps<Config>][4];
  u32 odd[kPieceSteps<Config>][4];
  LoadedFactors<Config> ahead[kAhead] = {};
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (first + i < last) ahead[i].load(scales, zeros, row, first + i);
  }
  int previous = 0;
  for (int step = first; step < last; ++step) {
    const unsigned char* const panels = shared + stage * Config::kStageBytes;
    const unsigned char* const tile = panels + Config::kATileBytes;
    full[stage].wait(parity);
    const StageFactors<Config> own = ahead[0].factors(zeros, row, step);
    ahead[0] = ahead[kAhead - 1];
    if (step + kAhead < last) ahead[kAhead - 1].load(scales, zeros, row, step + kAhead);
    wgmma_wait<1>();
    widen_fragments<Config, 0>(even, tile, row, own);
    wgmma_fence();
    multiply_converted_piece<Config, 0>(sums, even, panels, step > first);
    wgmma_commit();
    wgmma_wait<1>();
    if (step > first && lane == 0) release_stage<kRows, kColumns>(empty[previous]);
    widen_fragments<Config, 1>(odd, tile, row, own);
    wgmma_fence();
    multiply_converted_piece<Config, 1>(sums, odd, panels, 1);
    wgmma_commit();
    previous = stage;
    stage = stage + 1 == Config::kStages ? 0 : stage + 1;
    parity ^= stage == 0;
  }
  wgmma_wait<0>();
  wgmma_pin(sums);
  if (first < last && lane == 0) release_stage<kRows, kColumns>(empty[previous]);
}

}  // namespace fusec
