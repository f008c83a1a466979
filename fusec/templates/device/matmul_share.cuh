// The sums of a split product's tile in shared memory, as rows of kSumsPitch floats, and what of
// them a thread owns: quads, four neighbours of a row. Every CTA of a cluster owns as many, and the
// CTAs take turns along the tile, so that a tile with few rows leaves none without work. `Config` is
// the struct at the top of the kernel. Of kProducts joined products the columns of a tile lie side by
// side, and what a thread owns alternates between them: the same columns of both.
#pragma once

#include "shuffle.cuh"
#include "vector.cuh"

namespace fusec {

// A multiplying thread: its sums to their places. wgmma leaves a lane two neighbours of rows r and
// r + 8 of every eight columns, or with swapped operands of columns r and r + 8; the pitch has the
// lanes of a warp in different banks. kRowDistance: columns of the tile that rows of wgmma 8 apart are apart.
template <class Config, int kRowDistance = 8>
__device__ __forceinline__ void store_tile(float* tile, const float (&sums)[Config::kSumsOwn]) {
  const int lane = threadIdx.x % 32;
  constexpr int kBlockSums = (Config::kSwapAB ? Config::kTileM : Config::kTileN) / 2;
  constexpr int kBlocks = Config::kSumsOwn / kBlockSums;  // of 64 rows, or columns, of a warpgroup
  const int along = threadIdx.x / 128 * (64 * kBlocks) + threadIdx.x / 32 % 4 * 16 +
                    lane / 4 * (kRowDistance == 1 ? 2 : 1);
  const int across = lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < Config::kSumsOwn; i += 4) {
    const int first = along + i / kBlockSums * 64;
    const int second = i % kBlockSums / 4 * 8 + across;
    if constexpr (Config::kSwapAB) {
      float* const at = tile + second * Config::kSumsPitch + first;
      if constexpr (kRowDistance == 1) {  // one by one, two lanes would meet in a bank
        store(at, Vec<float, 2>{sums[i], sums[i + 2]});
        store(at + Config::kSumsPitch, Vec<float, 2>{sums[i + 1], sums[i + 3]});
      } else {
        at[0] = sums[i];
        at[Config::kSumsPitch] = sums[i + 1];
        at[kRowDistance] = sums[i + 2];
        at[Config::kSumsPitch + kRowDistance] = sums[i + 3];
      }
    } else {
      float* const at = tile + first * Config::kSumsPitch + second;
      store(at, Vec<float, 2>{sums[i], sums[i + 1]});
      store(at + kRowDistance * Config::kSumsPitch, Vec<float, 2>{sums[i + 2], sums[i + 3]});
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
  constexpr int kColumns = Config::kTileN / Config::kProducts;
  const int turn = f / Config::kProducts * Config::kCluster + rank;
  const int number = turn * Config::kMultipliers + threadIdx.x;
  const int column = number % (kColumns / 4) * 4;
  return {number / (kColumns / 4), column + f % Config::kProducts * kColumns};
}

// The same of a quad by its number in the share of a CTA.
template <class Config>
__device__ __forceinline__ Quad quad_of_share(int quad, int rank) {
  constexpr int kQuads = Config::kTileN / 4;
  const int turn = quad / Config::kMultipliers * Config::kCluster + rank;
  const int number = turn * Config::kMultipliers + quad % Config::kMultipliers;
  return {number / kQuads, number % kQuads * 4};
}

// The same of four sums that wgmma leaves a thread, by their number, once lanes have exchanged them:
// lanes with even numbers then have four neighbours of row r, those with odd ones of row r + 8.
template <class Config>
__device__ __forceinline__ Quad quad_of_fragment(int quad) {
  constexpr int kBlockSums = Config::kTileN / 2;
  constexpr int kBlocks = Config::kSumsOwn / kBlockSums;  // of 64 rows of a warpgroup
  const int thread = quad % Config::kMultipliers;
  const int first = quad / Config::kMultipliers * 4;
  const int lane = thread % 32;
  const int warp_row = thread / 128 * (64 * kBlocks) + thread / 32 % 4 * 16;
  return {warp_row + first / kBlockSums * 64 + lane % 2 * 8 + lane / 4,
          first % kBlockSums / 4 * 8 + lane % 4 / 2 * 4};
}

// The exchange, of all lanes of a warp: a lane gives its neighbour the two sums of the other's row.
__device__ __forceinline__ float4 neighbours_of_fragment(float4 sums) {
  const bool is_odd = threadIdx.x % 2 != 0;
  const float x = shuffle_xor(is_odd ? sums.x : sums.z, 1);
  const float y = shuffle_xor(is_odd ? sums.y : sums.w, 1);
  return is_odd ? make_float4(x, y, sums.z, sums.w) : make_float4(sums.x, sums.y, x, y);
}

// visit(row, column, acc) for the sums of a quad, kWidth neighbouring columns at a time.
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

// The same of two joined products: visit(row, column, acc, acc2).
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

// visit(row, column, acc), of joined products with acc2 too, for what a thread owns, kWidth
// neighbouring columns at a time.
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
