// Main loop of a GEMM with 8- or 4-bit integer weights B and 16-bit floats A. It uses the ring of
// matmul_hopper.cuh with stages 128 or 64 elements of K deep. A and B are swapped: columns of B are
// the rows of wgmma and come from registers, where each thread converts its own elements to 16-bit
// floats, so shared memory is only written by copies. A is K-major and stored in panels of 64
// elements of K; B is K-major or N-major.
#pragma once

#include "block_scales.cuh"
#include "matmul_hopper.cuh"
#include "weights.cuh"
#include "wgmma_converted.cuh"

namespace fusec {

// Quantization groups along K that overlap a stage.
template <class Config>
inline constexpr int kStageGroups =
    Config::kGroup < Config::kTileK ? Config::kTileK / Config::kGroup : 1;

// Zero points and scales of a thread's two rows of wgmma in one stage, each duplicated in both
// halves of a register.
template <class Config>
struct StageFactors {
  u32 scales[kStageGroups<Config>][2];
  u32 zeros[kStageGroups<Config>][2];
};

// The same factors as loaded from memory; they are only waited for when a stage needs them.
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

// Prefetches the scales and zero points of a CTA's steps into L2. Called by the producer warps that
// do not load tiles. For N-major weights each stage has cache lines of its own, so consumers would
// otherwise wait for DRAM.
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

// Returns two neighbours along K of one of the thread's rows as 16-bit floats: in the 16 elements
// of K that start at `depth`, in the first or second half. `tile`: the swizzled tile of B; its rows
// have the bytes of a stage if K-major, else 128 bytes, or 64 with two weights per byte along N.
// `which` selects row `row` or `row` + 8 if K-major, else the even `row` or the next one.
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
    const int line = (depth + half * 8) / 2 + lane % 4;  // a line of 128 bytes holds two rows of 64
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

// Steps of 16 elements of K in half a stage.
template <class Config>
inline constexpr int kPieceSteps = Config::kTileK / 32;

// Converts a thread's fragments for half number kPiece of a stage.
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

// accumulators += the products of 64 columns of B, all rows of A and half number kPiece of a stage;
// with adds = 0 they are overwritten. Called by one warpgroup, asynchronous: between wgmma_fence
// and wgmma_commit.
template <class Config, int kPiece>
__device__ __forceinline__ void multiply_converted_piece(
    float (&accumulators)[Config::kAccumulators], const u32 (&a)[kPieceSteps<Config>][4],
    const unsigned char* panels, int adds) {
  constexpr int kFirst = kPiece * kPieceSteps<Config>;
  const unsigned char* const panel = panels + kFirst / 4 * (Config::kTileM * 128);
#pragma unroll
  for (int step = 0; step < kPieceSteps<Config>; ++step) {
    wgmma_converted<Config::kTileM, typename Config::T>(
        accumulators, a[step], operand_descriptor<true>(panel, kFirst % 4 + step),
        step > 0 ? 1 : adds);
  }
}

// Consumer, all threads of a warpgroup: accumulators += the products of the same K steps, as in
// multiply_stages. Converting the fragments of one half stage overlaps with the products of the
// other half; a stage is released when the products of its second half are complete.
template <class Config, class Pipeline = PlainPipeline, class Scales, class Zeros>
__device__ __forceinline__ void multiply_converted(float (&accumulators)[Config::kAccumulators],
                                                   unsigned char* shared, int first, int last,
                                                   int& stage, u32& parity, const Scales& scales,
                                                   const Zeros& zeros) {
  constexpr int kRows = Pipeline::kRows;
  constexpr int kColumns = Pipeline::kColumns;
  static_assert(Config::kTileK == 128 || Config::kTileK == 64);
  // Stages whose factors are loaded ahead, limited by registers.
  constexpr bool kFew = Config::kResident == 1 && kStageGroups<Config> * Config::kTileM <= 256;
  constexpr int kAhead = kStageGroups<Config> == 1 || kFew ? 2 : 1;
  Barrier* const full = reinterpret_cast<Barrier*>(shared + Config::kFull);
  Barrier* const empty = reinterpret_cast<Barrier*>(shared + Config::kEmpty);
  const int lane = threadIdx.x % 32;
  const int row =
      warpgroup_number() * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4 * (Config::kBKMajor ? 1 : 2);
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
    multiply_converted_piece<Config, 0>(accumulators, even, panels, step > first);
    wgmma_commit();
    wgmma_wait<1>();
    if (step > first && lane == 0) release_stage<kRows, kColumns>(empty[previous]);
    widen_fragments<Config, 1>(odd, tile, row, own);
    wgmma_fence();
    multiply_converted_piece<Config, 1>(accumulators, odd, panels, 1);
    wgmma_commit();
    previous = stage;
    stage = stage + 1 == Config::kStages ? 0 : stage + 1;
    parity ^= stage == 0;
  }
  wgmma_wait<0>();
  wgmma_pin(accumulators);
  if (first < last && lane == 0) release_stage<kRows, kColumns>(empty[previous]);
}

}  // namespace fusec
