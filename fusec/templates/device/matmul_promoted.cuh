// Main loop of an FP8 GEMM. It uses the ring of matmul_hopper.cuh with stages 128 elements of K
// deep. Tensor cores accumulate FP8 products in reduced precision, so the partial sums of each
// stage are promoted: added to fp32 accumulators in registers. One warpgroup's promotion overlaps
// with the products of another. Both operands are K-major.
#pragma once

#include "matmul_hopper.cuh"
#include "stage_scales.cuh"
#include "wgmma_fp8.cuh"

namespace fusec {

// partial = A B for 64 rows of A, kColumns columns of B and the 128 elements of K of a stage.
// Called by one warpgroup, asynchronous: between wgmma_fence and wgmma_commit.
template <class A, int kColumns, class B>
__device__ __forceinline__ void multiply_stage_fp8(float (&part)[kColumns / 2],
                                                   const unsigned char* a_tile,
                                                   const unsigned char* b_tile) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    wgmma_fp8<kColumns, A, B>(part, operand_descriptor<true>(a_tile, step),
                              operand_descriptor<true>(b_tile, step), step > 0);
  }
}

// Consumer, all threads of a warpgroup: accumulators = the products of K steps [first, last) for
// the warpgroup's own rows of the tile (columns with kSwapAB), as in multiply_stages. A stage is
// released when its products are complete. `scales`: none, or the block scales of wgmma's rows and
// columns; those of the next stage are loaded while the current one is multiplied.
template <class Config, class Pipeline = PlainPipeline, class... Scales>
__device__ __forceinline__ void multiply_promoted(float (&accumulators)[Config::kAccumulators],
                                                  unsigned char* shared, int first, int last,
                                                  int& stage, u32& parity,
                                                  const Scales&... scales) {
  Barrier* const full = reinterpret_cast<Barrier*>(shared + Config::kFull);
  Barrier* const empty = reinterpret_cast<Barrier*>(shared + Config::kEmpty);
  constexpr int kRows = Pipeline::kRows;
  constexpr int kColumns = Pipeline::kColumns;
  constexpr int kN = Config::kSwapAB ? Config::kTileM : Config::kTileN;
  constexpr int kPart = kN / 2;
  constexpr int kBlocks = Config::kAccumulators / kPart;
  const int own = warpgroup_number() * (kBlocks * kBlockBytes);
  const int lane = threadIdx.x % 32;
  StageScales<kBlocks, kN, Scales...> next;
  if (first < last) next.load(first, scales...);
#pragma unroll
  for (int i = 0; i < Config::kAccumulators; ++i) accumulators[i] = 0.0f;
  for (int step = first; step < last; ++step) {
    const unsigned char* const a_tile = shared + stage * Config::kStageBytes;
    const unsigned char* const b_tile = a_tile + Config::kATileBytes;
    const auto own_scales = next;
    full[stage].wait(parity);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      float part[kPart];
      wgmma_fence();
      if constexpr (Config::kSwapAB) {
        multiply_stage_fp8<typename Config::TB, kN, typename Config::TA>(part, b_tile + own,
                                                                         a_tile);
      } else {
        multiply_stage_fp8<typename Config::TA, kN, typename Config::TB>(
            part, a_tile + own + block * kBlockBytes, b_tile);
      }
      wgmma_commit();
      if (block == 0 && step + 1 < last) next.load(step + 1, scales...);
      wgmma_wait<0>();
      wgmma_pin(part);
      if (block == kBlocks - 1 && lane == 0) release_stage<kRows, kColumns>(empty[stage]);
#pragma unroll
      for (int i = 0; i < kPart; ++i) {
        accumulators[block * kPart + i] += own_scales.scaled(part[i], block, i);
      }
    }
    stage = stage + 1 == Config::kStages ? 0 : stage + 1;
    parity ^= stage == 0;
  }
}

}  // namespace fusec
