// The sums of a split product's tile in shared memory, as rows of kSumsPitch floats, and what of
// them a thread owns: quads, four neighbours of a row. Every CTA of a cluster owns as many, and the
// CTAs take turns along the tile, so that a tile with few rows leaves none without work. `Config` is
// the struct at the top of the kernel.
#pragma once

#include "vector.cuh"

namespace fusec {

// A multiplying thread: its sums to their places. wgmma leaves a lane two neighbours of rows r and
// r + 8 of every eight columns, or with swapped operands of columns r and r + 8; the pitch has the
// lanes of a warp in different banks. kApart: columns of the tile that rows of wgmma 8 apart are apart.
template <class Config, int kApart = 8>
__device__ __forceinline__ void store_tile(float* tile, const float (&sums)[Config::kSumsOwn]) {
  const int lane = threadIdx.x % 32;
  constexpr int kBlockSums = (Config::kSwapped ? Config::kTileM : Config::kTileN) / 2;
  constexpr int kBlocks = Config::kSumsOwn / kBlockSums;  // of 64 rows, or columns, of a warpgroup
  const int along = threadIdx.x / 128 * (64 * kBlocks) + threadIdx.x / 32 % 4 * 16 +
                    lane / 4 * (kApart == 1 ? 2 : 1);
  const int across = lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < Config::kSumsOwn; i += 2) {
    const int first = along + i / kBlockSums * 64 + i / 2 % 2 * kApart;
    const int second = i % kBlockSums / 4 * 8 + across;
    if constexpr (Config::kSwapped) {
      tile[second * Config::kSumsPitch + first] = sums[i];
      tile[(second + 1) * Config::kSumsPitch + first] = sums[i + 1];
    } else {
      const Vec<float, 2> pair = {sums[i], sums[i + 1]};
      store(tile + first * Config::kSumsPitch + second, pair);
    }
  }
}

// Where quad number f of a thread begins in the tile.
struct Quad {
  int row;
  int column;
};

template <class Config>
__device__ __forceinline__ Quad quad_of(int f, int rank) {
  constexpr int kQuads = Config::kTileN / 4;
  const int number = (f * Config::kCluster + rank) * Config::kMultipliers + threadIdx.x;
  return {number / kQuads, number % kQuads * 4};
}

// visit(row, column, acc) for what a thread owns, kWidth neighbouring columns at a time.
template <class Config, int kWidth, class Visit>
__device__ __forceinline__ void visit_share(const float4 (&share)[Config::kOwned], int rank,
                                            const Visit& visit) {
#pragma unroll
  for (int f = 0; f < Config::kOwned; ++f) {
    const Quad quad = quad_of<Config>(f, rank);
    const float values[4] = {share[f].x, share[f].y, share[f].z, share[f].w};
#pragma unroll
    for (int i = 0; i < 4; i += kWidth) {
      Vec<float, kWidth> acc;
#pragma unroll
      for (int e = 0; e < kWidth; ++e) acc[e] = values[i + e];
      visit(quad.row, quad.column + i, acc);
    }
  }
}

}  // namespace fusec
