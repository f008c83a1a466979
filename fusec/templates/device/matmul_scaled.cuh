// The main loop of a product on 8-bit floats with scales that vary along K, beside that of
// matmul_promoted.cuh: where the sums of a stage are added to those of all, they are multiplied by
// the scales of its 128 elements of K. The scales of the next stage are read under the products.
#pragma once

#include "block_scales.cuh"
#include "matmul_promoted.cuh"

namespace fusec {

// Neighbouring rows of a tile that begins anywhere in multiples of its extent and share a scale.
template <class Scales>
struct ScaledRows {
  static constexpr int kRows = 0;
};
template <int kEach, class S, class Index>
struct ScaledRows<BlockScales<kEach, S, Index>> {
  static constexpr int kRows = kEach;
};

__host__ __device__ constexpr int common_divisor(int a, int b) {
  return b == 0 ? a : common_divisor(b, a % b);
}

// A thread: what the sums of a stage are multiplied by, those of its rows of wgmma and of its
// columns, one for as many as share it.
template <int kBlocks, int kColumns, class Rows, class Columns>
struct StageScales {
  static constexpr int kShared = common_divisor(kColumns, ScaledRows<Columns>::kRows);
  static constexpr bool kEach = kShared < 8;
  float rows[kBlocks][2];
  float columns[kEach ? kColumns / 4 : kColumns / kShared];

  __device__ __forceinline__ void load(const Rows& of_rows, const Columns& of_columns, int step) {
    const int lane = threadIdx.x % 32;
    const int own = threadIdx.x / 128 * (kBlocks * 64) + threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < 2 * kBlocks; ++i) {
      rows[i / 2][i % 2] = of_rows.at(own + i / 2 * 64 + i % 2 * 8, step);
    }
#pragma unroll
    for (int i = 0; i < (kEach ? kColumns / 4 : kColumns / kShared); ++i) {
      columns[i] = of_columns.at(kEach ? i / 2 * 8 + lane % 4 * 2 + i % 2 : i * kShared, step);
    }
  }

  // Of the i-th sum of a block.
  __device__ __forceinline__ float of(int block, int i) const {
    return rows[block][i / 2 % 2] * columns[kEach ? i / 4 * 2 + i % 2 : i / 4 * 8 / kShared];
  }
};

// A consumer, all threads of its warpgroup: as multiply_promoted. of_rows, of_columns: the scales of
// wgmma's rows and of its columns.
template <class Config, int kCluster = 1, class Rows, class Columns>
__device__ __forceinline__ void multiply_scaled(float (&sums)[Config::kSumsOwn],
                                                unsigned char* shared, int first, int last,
                                                int& stage, u32& parity, const Rows& of_rows,
                                                const Columns& of_columns) {
  Barrier* const full = reinterpret_cast<Barrier*>(shared + Config::kFull);
  Barrier* const empty = reinterpret_cast<Barrier*>(shared + Config::kEmpty);
  constexpr int kColumns = Config::kSwapped ? Config::kTileM : Config::kTileN;
  constexpr int kPart = kColumns / 2;
  constexpr int kBlocks = Config::kSumsOwn / kPart;
  const int own = warpgroup_number() * (kBlocks * kBlockBytes);
  const int lane = threadIdx.x % 32;
  using Scales = StageScales<kBlocks, kColumns, Rows, Columns>;
  Scales next;
  if (first < last) next.load(of_rows, of_columns, first);
#pragma unroll
  for (int i = 0; i < Config::kSumsOwn; ++i) sums[i] = 0.0f;
  for (int step = first; step < last; ++step) {
    const unsigned char* const a_tile = shared + stage * Config::kStageBytes;
    const unsigned char* const b_tile = a_tile + Config::kATileBytes;
    const Scales scales = next;
    full[stage].wait(parity);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      float part[kPart];
      wgmma_fence();
      if constexpr (Config::kSwapped) {
        multiply_stage_fp8<typename Config::TB, kColumns, typename Config::TA>(part, b_tile + own,
                                                                               a_tile);
      } else {
        multiply_stage_fp8<typename Config::TA, kColumns, typename Config::TB>(
            part, a_tile + own + block * kBlockBytes, b_tile);
      }
      wgmma_commit();
      if (block == 0 && step + 1 < last) next.load(of_rows, of_columns, step + 1);
      wgmma_wait<0>();
      wgmma_pin(part);
      if (block == kBlocks - 1 && lane == 0) release_stage<kCluster>(empty[stage]);
#pragma unroll
      for (int i = 0; i < kPart; ++i) sums[block * kPart + i] += part[i] * scales.of(block, i);
    }
    stage = stage + 1 == Config::kStages ? 0 : stage + 1;
    parity ^= stage == 0;
  }
}

}  // namespace fusec
