// Scales and zero points of the weights that a lane holds of a part of K (matmul_weights.cuh,
// matmul_weights_across.cuh). `Config` is the struct at the top of the kernel.
#pragma once

#include "weights.cuh"

namespace fusec {

// How many loads of a part, kDepth elements of K, have factors of their own: all, or one if a group
// consists of whole parts. The elements that a lane loads at a time share their factors.
template <class Config, int kDepth, int kLoads>
inline constexpr int kFactorLoads = Config::kGroup % kDepth == 0 ? 1 : kLoads;

// Loads the factors of a lane's columns for a part. column(i): the lane's i-th column in the tile;
// own: offset of the lane's elements of K in a load.
template <class Config, class Part, class Scales, class Zeros, class Column, class Offset,
          class Index>
__device__ __forceinline__ void load_factors(Part& part, const Scales& scales, const Zeros& zeros,
                                             const Column& column, Offset own, Index depth,
                                             Index last, bool is_guarded) {
#pragma unroll
  for (int by = 0; by < Part::kScaleLoads; ++by) {
    Index at = depth;
    if constexpr (Config::kGroup % Part::kDepth != 0) {
      at += by * (Part::kDepth / Part::kLoads) + own;
      if (is_guarded && at >= last) at = 0;
    }
    const int group = static_cast<int>(at / Config::kGroup);
#pragma unroll
    for (int i = 0; i < Config::kTileN / 8; ++i) {
      if constexpr (Config::kScaled) {
        part.scales[by][i] = scales.value(column(i), group).bits * 0x10001u;
      }
      if constexpr (Config::kLowered) {
        part.zeros[by][i] = zeros.template pair<typename Config::T>(column(i), group);
      }
    }
  }
}

// Returns two weights of a load and a column, minus their zero points, times their scales.
template <class Config, class Part>
__device__ __forceinline__ u32 weigh_pair_of(const Part& part, u32 pair, int load, int column) {
  const int by = load % Part::kScaleLoads;
  return weigh_pair<Config>(pair, part.zeros[by][column], part.scales[by][column]);
}

}  // namespace fusec
