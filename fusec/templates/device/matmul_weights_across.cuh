// As matmul_weights.cuh, of weights that are contiguous along N. A lane takes neighbouring columns of
// eight neighbours along K, and these of its rows of A: the rows of mma_16816 are two of its columns
// at a time, so that nothing changes places between lanes.
#pragma once

#include "block_scales.cuh"
#include "matmul_vector.cuh"
#include "weights.cuh"

namespace fusec {

constexpr int kAcrossPart = 64;  // elements of K that a warp takes at a time
constexpr int kAcrossOwn = 8;    // of them, that a lane takes at once

// What a lane holds of B and A, of kAcrossPart elements of K.
template <class Config>
struct AcrossPart {
  using Codes = typename Config::Codes;
  static constexpr int kLoads = kAcrossPart / (4 * kAcrossOwn);
  static constexpr int kColumns = Config::kTileN / 8;
  static constexpr int kBytes = Config::kPaired ? kColumns / 2 : kColumns;
  // Elements of K of a byte.
  static constexpr int kDepth = Config::kPaired ? 1 : Codes::kNeighbours;
  static constexpr int kLines = kAcrossOwn / kDepth;
  static constexpr int kScaleLoads = Config::kGroup % kAcrossPart == 0 ? 1 : kLoads;
  Vec<u32, kBytes / 4> b[kLoads][kLines];
  Vec<u32, 4> a[Config::kTileM / 8][kLoads];
  u32 scales[kScaleLoads][kColumns];
  u32 zeros[kScaleLoads][kColumns];

  // The pair-th two neighbours along K of a column, as halves.
  __device__ __forceinline__ u32 weights(int load, int pair, int column) const {
    if constexpr (kDepth == 2) {
      return Codes::both(b[load][pair][column / 4], column % 4);
    } else {
      constexpr int kInWord = 4 * kColumns / kBytes;
      const int word = column / kInWord;
      return Codes::across(b[load][2 * pair][word], b[load][2 * pair + 1][word], column % kInWord);
    }
  }
};

// sums += the products of kAcrossPart elements; sums[i][j] are those of two columns of each lane, as
// rows of mma_16816, and of 8 rows of A.
template <class Config>
__device__ __forceinline__ void multiply_across_part(
    float (&sums)[Config::kTileN / 16][Config::kTileM / 8][4], const AcrossPart<Config>& part) {
  using T = typename Config::T;
  using Part = AcrossPart<Config>;
#pragma unroll
  for (int load = 0; load < Part::kLoads; ++load) {
    const int by = load % Part::kScaleLoads;
#pragma unroll
    for (int pair = 0; pair < kAcrossOwn / 2; pair += 2) {
#pragma unroll
      for (int i = 0; i < Config::kTileN / 16; ++i) {
        u32 columns[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int own = 2 * i + e % 2;
          columns[e] = weigh_pair<Config>(part.weights(load, pair + e / 2, own),
                                          part.zeros[by][own], part.scales[by][own]);
        }
#pragma unroll
        for (int j = 0; j < Config::kTileM / 8; ++j) {
          const u32 rows[2] = {part.a[j][load][pair], part.a[j][load][pair + 1]};
          mma_16816<T>(sums[i][j], columns, rows);
        }
      }
    }
  }
}

// The elements of a lane's rows and columns from `depth` on, zeros from `last` on if it is kGuarded:
// K is a multiple of kAcrossOwn. column: the first of a lane's, of the tile.
template <class Config, bool kGuarded, class T, class W, class Index, class Scales, class Zeros>
__device__ __forceinline__ void load_across(AcrossPart<Config>& part,
                                            const T* const (&a_rows)[Config::kTileM / 8],
                                            const W* b_columns, Index b_stride,
                                            const Scales& scales, const Zeros& zeros, int column,
                                            Index depth, Index last) {
  using Part = AcrossPart<Config>;
  const int own = threadIdx.x % 4 * kAcrossOwn;
#pragma unroll
  for (int load = 0; load < Part::kLoads; ++load) {
    const Index at = depth + load * (4 * kAcrossOwn);
    const bool is_inside = !kGuarded || at + own < last;
    const W* const line = b_columns + (at + own) / Part::kDepth * b_stride;
#pragma unroll
    for (int i = 0; i < Part::kLines; ++i) {
      const u32* const words = reinterpret_cast<const u32*>(line + i * b_stride);
      part.b[load][i] =
          is_inside ? load_words_once<Part::kBytes / 4>(words) : splat<u32, Part::kBytes / 4>(0);
    }
#pragma unroll
    for (int j = 0; j < Config::kTileM / 8; ++j) {
      const u32* const words = reinterpret_cast<const u32*>(a_rows[j] + at);
      part.a[j][load] = is_inside ? load_readonly<4>(words) : splat<u32, 4>(0);
    }
  }
#pragma unroll
  for (int by = 0; by < Part::kScaleLoads; ++by) {
    Index at = depth;
    if constexpr (Config::kGroup % kAcrossPart != 0) {
      at += by * (4 * kAcrossOwn) + own;
      if (kGuarded && at >= last) at = 0;
    }
    const int group = static_cast<int>(at / Config::kGroup);
#pragma unroll
    for (int i = 0; i < Part::kColumns; ++i) {
      if constexpr (Config::kScaled) {
        part.scales[by][i] = scales.value(column + i, group).bits * 0x10001u;
      }
      if constexpr (Config::kLowered) {
        part.zeros[by][i] = zeros.template pair<T>(column + i, group);
      }
    }
  }
}

// As multiply_vectors.
template <class Config, class A, class B, class Scales, class Zeros, class Index>
__device__ __forceinline__ void multiply_weights_across(
    float (&sums)[Config::kTileN / 16][Config::kTileM / 8][4], const A& a, const B& b,
    const Scales& scales, const Zeros& zeros, Index first, Index last) {
  using T = typename Config::T;
  using W = typename Config::W;
  using Part = AcrossPart<Config>;
  constexpr int kOwn = Config::kStages * kAcrossPart;
  const int lane = threadIdx.x % 32;
  const T* a_rows[Config::kTileM / 8];
#pragma unroll
  for (int j = 0; j < Config::kTileM / 8; ++j) a_rows[j] = lane_row(a, 8 * j + lane / 4);
  // Whole chunks of columns lie within the matrix; what is beyond it nobody asks for.
  const int column = lane / 4 * Part::kColumns;
  const Index wanted = b.position + column;
  const Index place = wanted < b.extent ? wanted : b.extent - Part::kColumns;
  const W* const b_columns = b.data + place * Part::kBytes / Part::kColumns;
  Index start = first + static_cast<Index>(threadIdx.x / 32 * kOwn);
  for (; start + kOwn <= last; start += Config::kWarps * kOwn) {
    AcrossPart<Config> parts[Config::kStages];
#pragma unroll
    for (int s = 0; s < Config::kStages; ++s) {
      load_across<Config, false>(parts[s], a_rows, b_columns, b.depth_stride, scales, zeros, column,
                                 start + s * kAcrossPart, last);
    }
#pragma unroll
    for (int s = 0; s < Config::kStages; ++s) multiply_across_part<Config>(sums, parts[s]);
  }
  for (; start < last; start += kAcrossPart) {
    AcrossPart<Config> part;
    load_across<Config, true>(part, a_rows, b_columns, b.depth_stride, scales, zeros, column, start,
                              last);
    multiply_across_part<Config>(sums, part);
  }
}

}  // namespace fusec
