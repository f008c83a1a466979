// The main loop of a matrix product whose B is integers of 8 or 4 bits and whose A is halves, beside
// that of matmul_hopper.cuh: the same ring, whose stages are 128 bytes of B's columns deep. Operands
// are swapped: B's columns are the rows of wgmma, from registers. Each thread makes halves of what
// its rows have in shared memory, so that nothing is written there but by copies. A lies in panels of
// 64 elements of K; both operands are K-major.
#pragma once

#include "block_scales.cuh"
#include "matmul_hopper.cuh"
#include "weights.cuh"
#include "wgmma_converted.cuh"

namespace fusec {

// A thread: the fragments of 64 elements of K, the kPiece-th of a stage. `line`: the first of its
// two rows, which are 8 apart, in a tile of 128 bytes a row with the 128-byte swizzle; scales: of
// both rows, each twice, which the halves are multiplied by if Config::kScaled.
template <class Config, int kPiece>
__device__ __forceinline__ void widen_fragments(u32 (&a)[4][4], const unsigned char* line,
                                                const u32 (&scales)[2]) {
  using T = typename Config::T;
  using Codes = typename Config::Codes;
  constexpr int kBytes = 64 / Codes::kNeighbours;  // of a row
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const int at = kPiece * kBytes + step * (kBytes / 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int chunk = at / 16 ^ (lane / 4);
      const int within = at % 16 + (i / 2 * 8 + lane % 4 * 2) / Codes::kNeighbours;
      const unsigned char* const place = line + i % 2 * 8 * 128 + chunk * 16 + within;
      a[step][i] = Codes::neighbours(place);
      if constexpr (Config::kScaled) a[step][i] = multiply_pair<T>(a[step][i], scales[i % 2]);
    }
  }
}

// One warpgroup: sums += the products of 64 of B's columns, all of A's rows and 64 elements of K;
// without `adds` they begin as 0. Asynchronous: between wgmma_fence and wgmma_commit.
template <class T, int kColumns>
__device__ __forceinline__ void multiply_converted_stage(float (&sums)[kColumns / 2],
                                                         const u32 (&a)[4][4],
                                                         const unsigned char* panel, int adds) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    wgmma_converted<kColumns, T>(sums, a[step], operand_descriptor<true>(panel, step),
                                 step > 0 ? 1 : adds);
  }
}

// A thread: the scales of its two rows for the groups of a stage, each twice.
template <class Config, class Scales>
__device__ __forceinline__ void load_row_scales(u32 (&found)[Config::kTileK / 128][2],
                                                const Scales& scales, int row, int step) {
  if constexpr (Config::kScaled) {
#pragma unroll
    for (int i = 0; i < 2 * (Config::kTileK / 128); ++i) {
      const int group = step * (Config::kTileK / 128) + i / 2;
      found[i / 2][i % 2] = scales.value(row + i % 2 * 8, group).bits * 0x10001u;
    }
  }
}

// A consumer, all threads of its warpgroup: sums += the products of the same steps, as
// multiply_stages does. The fragments of one piece of a stage are made while the products of
// another run; a stage is handed back when those of its last piece have ended.
template <class Config, class Scales>
__device__ __forceinline__ void multiply_converted(float (&sums)[Config::kSumsOwn],
                                                   unsigned char* shared, int first, int last,
                                                   int& stage, u32& parity, const Scales& scales) {
  using T = typename Config::T;
  constexpr int kColumns = Config::kTileM;
  constexpr int kGroups = Config::kTileK / 128;
  Barrier* const full = reinterpret_cast<Barrier*>(shared + Config::kFull);
  Barrier* const empty = reinterpret_cast<Barrier*>(shared + Config::kEmpty);
  const int lane = threadIdx.x % 32;
  const int row = warpgroup_number() * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4;
  u32 even[4][4];
  u32 odd[4][4];
  u32 own[kGroups][2] = {};
  u32 next[kGroups][2] = {};
  if (first < last) load_row_scales<Config>(next, scales, row, first);
  int previous = 0;
  for (int step = first; step < last; ++step) {
    const unsigned char* const panels = shared + stage * Config::kStageBytes;
    const unsigned char* const line = panels + Config::kATileBytes + row * 128;
    full[stage].wait(parity);
#pragma unroll
    for (int i = 0; i < 2 * kGroups; ++i) own[i / 2][i % 2] = next[i / 2][i % 2];
    if (step + 1 < last) load_row_scales<Config>(next, scales, row, step + 1);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const unsigned char* const panel = panels + 2 * group * kColumns * 128;
      wgmma_wait<1>();
      if (group == 0) {
        widen_fragments<Config, 0>(even, line, own[group]);
      } else {
        widen_fragments<Config, 2 * (kGroups - 1)>(even, line, own[group]);
      }
      wgmma_fence();
      multiply_converted_stage<T, kColumns>(sums, even, panel, step > first || group > 0);
      wgmma_commit();
      wgmma_wait<1>();
      if (group == 0 && step > first && lane == 0) release_stage<1>(empty[previous]);
      if (group == 0) {
        widen_fragments<Config, 1>(odd, line, own[group]);
      } else {
        widen_fragments<Config, 2 * kGroups - 1>(odd, line, own[group]);
      }
      wgmma_fence();
      multiply_converted_stage<T, kColumns>(sums, odd, panel + kColumns * 128, 1);
      wgmma_commit();
    }
    previous = stage;
    stage = stage + 1 == Config::kStages ? 0 : stage + 1;
    parity ^= stage == 0;
  }
  wgmma_wait<0>();
  wgmma_pin(sums);
  if (first < last && lane == 0) release_stage<1>(empty[previous]);
}

}  // namespace fusec
