// The partial sums of a split-K tile in shared memory, as rows of kSumsPitch floats, and the quads
// (four neighbours of a row) that each thread owns. Every CTA of a cluster owns the same number of
// quads, interleaved across the tile so that small tiles keep all CTAs busy. A dual GEMM (kProducts
// = 2) stores the columns of both products next to each other, and a thread owns the same columns
// of both. `Config` is the struct at the top of the kernel.
#pragma once

#include "shuffle.cuh"
#include "vector.cuh"

namespace fusec {

// Multiplying thread: stores its accumulators to the tile. wgmma gives a lane two neighbours of
// rows r and r + 8 of every eight columns (of columns r and r + 8 with kSwapAB). The pitch avoids
// bank conflicts within a warp. kRowDistance: distance in columns of the tile between rows r and r
// + 8 of wgmma.
template <class Config, int kRowDistance = 8>
__device__ __forceinline__ void store_tile(float* tile,
                                           const float (&accumulators)[Config::kAccumulators]) {
  const int lane = threadIdx.x % 32;
  constexpr int kBlockAccumulators = (Config::kSwapAB ? Config::kTileM : Config::kTileN) / 2;
  constexpr int kBlocks =
      Config::kAccumulators / kBlockAccumulators;  // of 64 rows or columns per warpgroup
  const int along = threadIdx.x / 128 * (64 * kBlocks) + threadIdx.x / 32 % 4 * 16 +
                    lane / 4 * (kRowDistance == 1 ? 2 : 1);
  const int across = lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < Config::kAccumulators; i += 4) {
    const int first = along + i / kBlockAccumulators * 64;
    const int second = i % kBlockAccumulators / 4 * 8 + across;
    if constexpr (Config::kSwapAB) {
      float* const at = tile + second * Config::kSumsPitch + first;
      if constexpr (kRowDistance == 1) {  // scalar stores would have two-way bank conflicts
        store(at, Vec<float, 2>{accumulators[i], accumulators[i + 2]});
        store(at + Config::kSumsPitch, Vec<float, 2>{accumulators[i + 1], accumulators[i + 3]});
      } else {
        at[0] = accumulators[i];
        at[Config::kSumsPitch] = accumulators[i + 1];
        at[kRowDistance] = accumulators[i + 2];
        at[Config::kSumsPitch + kRowDistance] = accumulators[i + 3];
      }
    } else {
      float* const at = tile + first * Config::kSumsPitch + second;
      store(at, Vec<float, 2>{accumulators[i], accumulators[i + 1]});
      store(at + kRowDistance * Config::kSumsPitch,
            Vec<float, 2>{accumulators[i + 2], accumulators[i + 3]});
    }
  }
}

// The position in the tile where a thread's quad number f starts.
struct Quad {
  int row;
  int column;
};

template <class Config>
__device__ __forceinline__ Quad quad_of(int f, int rank) {
  constexpr int kColumns = Config::kTileN / Config::kProducts;
  const int turn = f / Config::kProducts * Config::kCluster + rank;
  const int number = turn * Config::kMultipliers + threadIdx.x;
  const int column = number % (kColumns / 4) * 4;
  return {number / (kColumns / 4), column + f % Config::kProducts * kColumns};
}

// The same by the quad's number in the CTA's share.
template <class Config>
__device__ __forceinline__ Quad quad_of_share(int quad, int rank) {
  constexpr int kQuads = Config::kTileN / 4;
  const int turn = quad / Config::kMultipliers * Config::kCluster + rank;
  const int number = turn * Config::kMultipliers + quad % Config::kMultipliers;
  return {number / kQuads, number % kQuads * 4};
}

// The same by the number of four accumulators of wgmma, after pairs of lanes shuffled them: even
// lanes then hold four neighbours of row r, odd lanes four of row r + 8.
template <class Config>
__device__ __forceinline__ Quad quad_of_fragment(int quad) {
  constexpr int kBlockAccumulators = Config::kTileN / 2;
  constexpr int kBlocks = Config::kAccumulators / kBlockAccumulators;  // of 64 rows per warpgroup
  const int thread = quad % Config::kMultipliers;
  const int first = quad / Config::kMultipliers * 4;
  const int lane = thread % 32;
  const int warp_row = thread / 128 * (64 * kBlocks) + thread / 32 % 4 * 16;
  return {warp_row + first / kBlockAccumulators * 64 + lane % 2 * 8 + lane / 4,
          first % kBlockAccumulators / 4 * 8 + lane % 4 / 2 * 4};
}

// All lanes of a warp: each lane sends its neighbour the two accumulators of the neighbour's row.
__device__ __forceinline__ float4 neighbours_of_fragment(float4 sums) {
  const bool is_odd = threadIdx.x % 2 != 0;
  const float x = shuffle_xor(is_odd ? sums.x : sums.z, 1);
  const float y = shuffle_xor(is_odd ? sums.y : sums.w, 1);
  return is_odd ? make_float4(x, y, sums.z, sums.w) : make_float4(sums.x, sums.y, x, y);
}

// Calls visit(row, column, acc) for a quad, kWidth neighbouring columns at a time.
template <int kWidth, class Visit>
__device__ __forceinline__ void visit_quad(float4 sums, Quad quad, const Visit& visit) {
  const float values[4] = {sums.x, sums.y, sums.z, sums.w};
#pragma unroll
  for (int i = 0; i < 4; i += kWidth) {
    Vec<float, kWidth> acc;
#pragma unroll
    for (int e = 0; e < kWidth; ++e) acc[e] = values[i + e];
    visit(quad.row, quad.column + i, acc);
  }
}

// The same for a dual GEMM: visit(row, column, acc, acc2).
template <int kWidth, class Visit>
__device__ __forceinline__ void visit_quads(float4 sums, float4 sums2, Quad quad,
                                            const Visit& visit) {
  const float second[4] = {sums2.x, sums2.y, sums2.z, sums2.w};
  visit_quad<kWidth>(sums, quad, [&](int row, int column, const Vec<float, kWidth>& acc) {
    Vec<float, kWidth> acc2;
#pragma unroll
    for (int e = 0; e < kWidth; ++e) acc2[e] = second[column - quad.column + e];
    visit(row, column, acc, acc2);
  });
}

// Calls visit(row, column, acc), or with acc2 for a dual GEMM, for all quads that a thread owns,
// kWidth neighbouring columns at a time.
template <class Config, int kWidth, class Visit>
__device__ __forceinline__ void visit_share(const float4 (&share)[Config::kOwned], int rank,
                                            const Visit& visit) {
#pragma unroll
  for (int f = 0; f < Config::kOwned; f += Config::kProducts) {
    const Quad quad = quad_of<Config>(f, rank);
    if constexpr (Config::kProducts == 1) {
      visit_quad<kWidth>(share[f], quad, visit);
    } else {
      visit_quads<kWidth>(share[f], share[f + 1], quad, visit);
    }
  }
}

}  // namespace fusec
