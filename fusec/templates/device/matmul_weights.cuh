// Main loop of a GEMV-like GEMM with small M and 8- or 4-bit integer weights B, analogous to
// matmul_gemv.cuh: B is streamed and converted to 16-bit floats in registers. A lane loads 16
// bytes of a column of B and the same elements of K of its rows of A. With zero points and scales
// per group of elements of K, weights are shifted and scaled, rounding at each step.
#pragma once

#include "block_scales.cuh"
#include "matmul_gemv.cuh"
#include "part_factors.cuh"
#include "weights.cuh"

namespace fusec {

constexpr int kWeightPart = 128;  // elements of K per warp and load

// The elements of B and A that a lane holds for kWeightPart elements of K, and the factors of B's
// columns.
template <class Config>
struct WeightPart {
  using Codes = typename Config::Codes;
  static constexpr int kDepth = kWeightPart;
  static constexpr int kPairs = Codes::kPairs;
  static constexpr int kLoads = kDepth / (8 * Codes::kPairs);  // 16-byte loads per column
  static constexpr int kRowLoads = Codes::kPairs / 4;          // loads of A per load of B
  static constexpr int kScaleLoads = kFactorLoads<Config, kDepth, kLoads>;
  Vec<u32, 4> b[Config::kTileN / 8][kLoads];
  u32 a[Config::kTileM / 8][kLoads][4 * kRowLoads];
  u32 scales[kScaleLoads][Config::kTileN / 8];  // per column, duplicated in both halves
  u32 zeros[kScaleLoads][Config::kTileN / 8];

  __device__ __forceinline__ u32 column_pair(int load, int pair, int column) const {
    return weigh_pair_of<Config>(*this, Codes::pair(b[column][load], pair), load, column);
  }
  __device__ __forceinline__ u32 row_pair(int load, int pair, int row) const {
    return Codes::row(a[row][load], pair);
  }
};

// Returns a lane's row of an operand with `own` neighbours per lane; see lane_row.
template <class T, class Index>
__device__ __forceinline__ const T* lane_row_of(const MatmulOperand<T, Index>& x, int row,
                                                int own) {
  return lane_row(x, row) + static_cast<int>(threadIdx.x % 4) * (own - 8);
}

// As multiply_vectors. K must be a multiple of the number of weights in 16 bytes.
template <class Config, class A, class B, class Scales, class Zeros, class Index>
__device__ __forceinline__ void multiply_weight_vectors(
    float (&accumulators)[Config::kTileN / 16][Config::kTileM / 8][4], const A& a, const B& b,
    const Scales& scales, const Zeros& zeros, Index first, Index last) {
  using T = typename Config::T;
  using W = typename Config::W;
  using Part = WeightPart<Config>;
  constexpr int kLane = 2 * Config::Codes::kPairs;  // elements of K per lane and load
  const int lane = threadIdx.x % 32;
  const T* a_rows[Config::kTileM / 8];
  const W* b_columns[Config::kTileN / 8];
#pragma unroll
  for (int j = 0; j < Config::kTileM / 8; ++j) a_rows[j] = lane_row_of(a, 8 * j + lane / 4, kLane);
#pragma unroll
  for (int i = 0; i < Config::kTileN / 8; ++i) b_columns[i] = lane_row_of(b, 8 * i + lane / 4, 16);
  const auto column = [&](int i) { return static_cast<int>(8 * i + threadIdx.x % 32 / 4); };
  const auto load = [&](Part& part, Index depth, bool is_guarded) {
#pragma unroll
    for (int load = 0; load < Part::kLoads; ++load) {
      const Index at = depth + load * (4 * kLane);
      const bool is_inside = !is_guarded || is_lane_inside(at, kLane, last);
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
    load_factors<Config>(part, scales, zeros, column, threadIdx.x % 4 * kLane, depth, last,
                         is_guarded);
  };
  multiply_stream<Config, Part>(accumulators, first, last, load, [](Part&, Index, bool) {});
}

}  // namespace fusec
