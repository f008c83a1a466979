// The main loop of a product whose A has few rows and whose B is integers of 8 or 4 bits, beside
// that of matmul_vector.cuh: a stream over B, which becomes halves in registers. A lane takes 16
// bytes of a column, and the same elements of K of its rows of A. Where a column has a zero point and a
// scale for each group of elements of K, the halves are lowered and multiplied, rounded at each step.
#pragma once

#include "block_scales.cuh"
#include "matmul_vector.cuh"
#include "weights.cuh"

namespace fusec {

constexpr int kWeightPart = 128;  // elements of K that a warp takes at a time

// What a lane holds of B and A, of kWeightPart elements of K.
template <class Config>
struct WeightPart {
  using Codes = typename Config::Codes;
  static constexpr int kLoads = kWeightPart / (8 * Codes::kPairs);  // of 16 bytes a column
  static constexpr int kRowLoads = Codes::kPairs / 4;               // of A, beside one of B
  Vec<u32, 4> b[Config::kTileN / 8][kLoads];
  u32 a[Config::kTileM / 8][kLoads][4 * kRowLoads];
  // Loads of a column that have scales of their own: what a lane takes at once has the same.
  static constexpr int kScaleLoads = Config::kGroup % kWeightPart == 0 ? 1 : kLoads;
  u32 scales[Config::kTileN / 8][kScaleLoads];  // of each column, twice
  u32 zeros[Config::kTileN / 8][kScaleLoads];
};

// sums += the products of kWeightPart elements; sums[i][j] as those of multiply_part.
template <class Config>
__device__ __forceinline__ void multiply_weights(
    float (&sums)[Config::kTileN / 16][Config::kTileM / 8][4], const WeightPart<Config>& part) {
  using T = typename Config::T;
  using Part = WeightPart<Config>;
  using Codes = typename Config::Codes;
#pragma unroll
  for (int load = 0; load < Part::kLoads; ++load) {
#pragma unroll
    for (int pair = 0; pair < Codes::kPairs; pair += 2) {
#pragma unroll
      for (int i = 0; i < Config::kTileN / 16; ++i) {
        u32 columns[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int own = 2 * i + e % 2;
          const int by = load % Part::kScaleLoads;
          columns[e] = weigh_pair<Config>(Codes::pair(part.b[own][load], pair + e / 2),
                                          part.zeros[own][by], part.scales[own][by]);
        }
#pragma unroll
        for (int j = 0; j < Config::kTileM / 8; ++j) {
          const u32* const words = part.a[j][load];
          const u32 rows[2] = {Codes::row(words, pair), Codes::row(words, pair + 1)};
          mma_16816<T>(sums[i][j], columns, rows);
        }
      }
    }
  }
}

// The elements of a lane's rows from `depth` on, zeros from `last` on if it is kGuarded: K is a
// multiple of as many weights as 16 bytes hold.
template <class Config, bool kGuarded, class T, class W, class Index, class Scales,
          class Zeros>
__device__ __forceinline__ void load_weights(WeightPart<Config>& part,
                                             const T* const (&a_rows)[Config::kTileM / 8],
                                             const W* const (&b_columns)[Config::kTileN / 8],
                                             const Scales& scales, const Zeros& zeros, Index depth,
                                             Index last) {
  using Part = WeightPart<Config>;
  constexpr int kLane = 2 * Config::Codes::kPairs;  // elements of K that a lane takes at once
#pragma unroll
  for (int load = 0; load < Part::kLoads; ++load) {
    const Index at = depth + load * (4 * kLane);
    const bool is_inside = !kGuarded || at + threadIdx.x % 4 * kLane < last;
#pragma unroll
    for (int i = 0; i < Config::kTileN / 8; ++i) {
      const u32* const words = reinterpret_cast<const u32*>(b_columns[i] + at / kLane * 16);
      part.b[i][load] = is_inside ? load_once(words) : splat<u32, 4>(0);
    }
#pragma unroll
    for (int j = 0; j < Config::kTileM / 8; ++j) {
#pragma unroll
      for (int w = 0; w < Part::kRowLoads; ++w) {
        const u32* const words = reinterpret_cast<const u32*>(a_rows[j] + at + 8 * w);
        const Vec<u32, 4> four = is_inside ? load_readonly<4>(words) : splat<u32, 4>(0);
#pragma unroll
        for (int e = 0; e < 4; ++e) part.a[j][load][4 * w + e] = four[e];
      }
    }
  }
#pragma unroll
  for (int by = 0; by < Part::kScaleLoads; ++by) {
    Index at = depth;
    if constexpr (Config::kGroup % kWeightPart != 0) {
      at += by * (4 * kLane) + threadIdx.x % 4 * kLane;
      if (kGuarded && at >= last) at = 0;
    }
    const int group = static_cast<int>(at / Config::kGroup);
#pragma unroll
    for (int i = 0; i < Config::kTileN / 8; ++i) {
      const int column = 8 * i + threadIdx.x % 32 / 4;
      if constexpr (Config::kScaled) {
        part.scales[i][by] = scales.value(column, group).bits * 0x10001u;
      }
      if constexpr (Config::kLowered) part.zeros[i][by] = zeros.template pair<T>(column, group);
    }
  }
}

// A row of an operand whose lanes have `own` neighbours each; see lane_row.
template <class T, class Index>
__device__ __forceinline__ const T* lane_row_of(const MatmulOperand<T, Index>& x, int row,
                                                int own) {
  return lane_row(x, row) + static_cast<int>(threadIdx.x % 4) * (own - 8);
}

// As multiply_vectors.
template <class Config, class A, class B, class Scales, class Zeros, class Index>
__device__ __forceinline__ void multiply_weight_vectors(
    float (&sums)[Config::kTileN / 16][Config::kTileM / 8][4], const A& a, const B& b,
    const Scales& scales, const Zeros& zeros, Index first, Index last) {
  using T = typename Config::T;
  using W = typename Config::W;
  constexpr int kOwn = Config::kStages * kWeightPart;
  const int lane = threadIdx.x % 32;
  const T* a_rows[Config::kTileM / 8];
  const W* b_columns[Config::kTileN / 8];
#pragma unroll
  for (int j = 0; j < Config::kTileM / 8; ++j) {
    a_rows[j] = lane_row_of(a, 8 * j + lane / 4, 2 * Config::Codes::kPairs);
  }
#pragma unroll
  for (int i = 0; i < Config::kTileN / 8; ++i) b_columns[i] = lane_row_of(b, 8 * i + lane / 4, 16);
  Index start = first + static_cast<Index>(threadIdx.x / 32 * kOwn);
  for (; start + kOwn <= last; start += Config::kWarps * kOwn) {
    WeightPart<Config> parts[Config::kStages];
#pragma unroll
    for (int s = 0; s < Config::kStages; ++s) {
      load_weights<Config, false>(parts[s], a_rows, b_columns, scales, zeros,
                                  start + s * kWeightPart, last);
    }
#pragma unroll
    for (int s = 0; s < Config::kStages; ++s) multiply_weights<Config>(sums, parts[s]);
  }
  for (; start < last; start += kWeightPart) {
    WeightPart<Config> part;
    load_weights<Config, true>(part, a_rows, b_columns, scales, zeros, start,
                               last);
    multiply_weights<Config>(sums, part);
  }
}

}  // namespace fusec
