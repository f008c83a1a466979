// As matmul_weights.cuh, for N-major weights. A lane loads neighbouring columns for eight
// neighbours along K, and the same elements of K of its rows of A. The lane's columns are the rows
// of mma_16816, two at a time, so no data moves between lanes.
#pragma once

#include "block_scales.cuh"
#include "matmul_gemv.cuh"
#include "part_factors.cuh"
#include "weights.cuh"

namespace fusec {

constexpr int kAcrossPart = 64;  // elements of K per warp and load
constexpr int kAcrossOwn = 8;    // elements of K per lane and load

// The elements of B and A that a lane holds for kAcrossPart elements of K, and the factors of B's
// columns.
template <class Config>
struct AcrossPart {
  using Codes = typename Config::Codes;
  static constexpr int kDepth = kAcrossPart;
  static constexpr int kLoads = kDepth / (4 * kAcrossOwn);
  static constexpr int kPairs = kAcrossOwn / 2;
  static constexpr int kColumns = Config::kTileN / 8;
  static constexpr int kBytes = Config::kPaired ? kColumns / 2 : kColumns;
  static constexpr int kInByte = Config::kPaired ? 1 : Codes::kNeighbours;  // weights along K
  static constexpr int kLines = kAcrossOwn / kInByte;
  static constexpr int kScaleLoads = kFactorLoads<Config, kDepth, kLoads>;
  Vec<u32, kBytes / 4> b[kLoads][kLines];
  Vec<u32, 4> a[Config::kTileM / 8][kLoads];
  u32 scales[kScaleLoads][kColumns];
  u32 zeros[kScaleLoads][kColumns];

  // Returns pair number `pair` of neighbours along K of a column, as 16-bit floats.
  __device__ __forceinline__ u32 weights(int load, int pair, int column) const {
    if constexpr (kInByte == 2) {
      return Codes::both(b[load][pair][column / 4], column % 4);
    } else {
      constexpr int kInWord = 4 * kColumns / kBytes;
      const int word = column / kInWord;
      return Codes::across(b[load][2 * pair][word], b[load][2 * pair + 1][word], column % kInWord);
    }
  }

  // The lane's columns are rows of mma_16816, two at a time.
  __device__ __forceinline__ u32 column_pair(int load, int pair, int column) const {
    return weigh_pair_of<Config>(*this, weights(load, pair, column), load, column);
  }
  __device__ __forceinline__ u32 row_pair(int load, int pair, int row) const {
    return a[row][load][pair];
  }
};

// As multiply_vectors. K must be a multiple of kAcrossOwn.
template <class Config, class A, class B, class Scales, class Zeros, class Index>
__device__ __forceinline__ void multiply_weights_across(
    float (&accumulators)[Config::kTileN / 16][Config::kTileM / 8][4], const A& a, const B& b,
    const Scales& scales, const Zeros& zeros, Index first, Index last) {
  using T = typename Config::T;
  using W = typename Config::W;
  using Part = AcrossPart<Config>;
  constexpr int kBytes = Part::kBytes;
  const int lane = threadIdx.x % 32;
  const T* a_rows[Config::kTileM / 8];
#pragma unroll
  for (int j = 0; j < Config::kTileM / 8; ++j) a_rows[j] = lane_row(a, 8 * j + lane / 4);
  // A chunk of columns is either inside the matrix or outside; results outside are never stored.
  const int first_column = lane / 4 * Part::kColumns;
  const Index wanted = b.position + first_column;
  const Index place = wanted < b.extent ? wanted : b.extent - Part::kColumns;
  const W* const b_columns = b.data + place * kBytes / Part::kColumns;
  const auto column = [&](int i) { return first_column + i; };
  const auto load = [&](Part& part, Index depth, bool is_guarded) {
    const int own = threadIdx.x % 4 * kAcrossOwn;
#pragma unroll
    for (int load = 0; load < Part::kLoads; ++load) {
      const Index at = depth + load * (4 * kAcrossOwn);
      const bool is_inside = !is_guarded || at + own < last;
      const W* const line = b_columns + (at + own) / Part::kInByte * b.depth_stride;
#pragma unroll
      for (int i = 0; i < Part::kLines; ++i) {
        const u32* const words = reinterpret_cast<const u32*>(line + i * b.depth_stride);
        part.b[load][i] =
            is_inside ? load_words_once<kBytes / 4>(words) : splat<u32, kBytes / 4>(0);
      }
      load_lane_rows<Config>(part, load, a_rows, at, is_inside);
    }
    load_factors<Config>(part, scales, zeros, column, own, depth, last, is_guarded);
  };
  multiply_stream<Config, Part>(accumulators, first, last, load, [](Part&, Index, bool) {});
}

}  // namespace fusec
