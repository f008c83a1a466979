// The pairs of two tiles of sums side by side, of products that are joined (staged_rows.cuh, for
// one tile). `Config` is the struct at the top of the kernel; each tile has kColumns columns.
#pragma once

#include "staged_rows.cuh"

namespace fusec {

// One warp: visit(row, column, place, acc, acc2) for the pairs of both tiles at a place, the
// first 16 rows of every 64; `place` is the pair's in staged rows. After every 16 rows of
// kStagedColumns columns leave(row, column, place) is called for these.
template <class Config, class Visit, class Leave>
__device__ __forceinline__ void visit_joined_pairs(const float (&sums)[Config::kSumsOwn],
                                                   const Visit& visit, const Leave& leave) {
  constexpr int kBlocks = Config::kSumsOwn / (Config::kTileN / 2);
  const int lane = own_lane();
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    const int line = Config::kStagedRows == 16 ? 0 : 16 * block;
#pragma unroll
    for (int first = 0; first < Config::kColumns; first += Config::kStagedColumns) {
#pragma unroll
      for (int column = 0; column < Config::kStagedColumns; column += 8) {
        if (first + column >= Config::kColumns) break;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = lane / 4 + 8 * half;
          const int i = block * (Config::kTileN / 2) + (first + column) / 2 + 2 * half;
          const int j = i + Config::kColumns / 2;
          const Vec<float, 2> acc = {sums[i], sums[i + 1]};
          const Vec<float, 2> acc2 = {sums[j], sums[j + 1]};
          const int own = column + lane % 4 * 2;
          visit(64 * block + row, first + own, (line + row) * Config::kStagedPitch + own, acc,
                acc2);
        }
      }
      __syncwarp();
      leave(64 * block, first, line * Config::kStagedPitch);
      __syncwarp();
    }
  }
}

}  // namespace fusec
