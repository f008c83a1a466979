// What a tile's results are reduced to before they leave a warp: one number of 32 columns of a row,
// or of 16 rows of a column. Sums lie in pairs of neighbouring columns, eight rows by
// four pairs a warp. Op is a combiner of combine.cuh; terms are combined in a fixed order.
#pragma once

#include "reduce.cuh"
#include "staged_rows.cuh"

namespace fusec {

// Of the two rows, eight apart, of which a lane holds pairs; `half` is known when compiled.
template <class Op>
struct RowTotals {
  float held[2] = {Op::identity(), Op::identity()};

  __device__ __forceinline__ void take(int half, const Vec<float, 2>& terms, bool inside) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      held[half] = Op::combine(held[half], inside ? terms[i] : Op::identity());
    }
  }

  // All lanes of the warp: put(row, total) for 16 rows, after the last of their columns.
  template <class Put>
  __device__ __forceinline__ void leave(const Put& put) {
    const int lane = own_lane();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = warp_reduce<Op, 4>(held[half]);
      if (lane % 4 == 0) put(lane / 4 + 8 * half, total);
      held[half] = Op::identity();
    }
  }
};

// Of the pair of columns that a lane holds of eight.
template <class Op>
struct ColumnTotals {
  Vec<float, 2> held;

  __device__ __forceinline__ void take(int half, const Vec<float, 2>& terms, bool inside) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float term = inside ? terms[i] : Op::identity();
      held[i] = half == 0 ? term : Op::combine(held[i], term);
    }
  }

  // All lanes of the warp: put(column, totals) for the pairs of eight columns, after both rows.
  template <class Put>
  __device__ __forceinline__ void leave(const Put& put) {
    const int lane = own_lane();
#pragma unroll
    for (int distance = 16; distance >= 4; distance /= 2) {
#pragma unroll
      for (int i = 0; i < 2; ++i) held[i] = Op::combine(held[i], shuffle_xor(held[i], distance));
    }
    if (lane < 4) put(2 * lane, held);
  }
};

// One warp: as visit_pairs, with visit(half, row, column, place, acc), where row is of the `half`;
// columns(row, column) follows 16 rows of eight columns, rows(row, column) those of 32.
template <class Config, class Visit, class Columns, class Rows, class Leave>
__device__ __forceinline__ void visit_summed_pairs(const float (&sums)[Config::kSumsOwn],
                                                   const Visit& visit, const Columns& columns,
                                                   const Rows& rows, const Leave& leave) {
  constexpr int kBlocks = Config::kSumsOwn / (Config::kTileN / 2);
  const int lane = own_lane();
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    const int line = Config::kStagedRows == 16 ? 0 : 16 * block;
#pragma unroll
    for (int first = 0; first < Config::kTileN; first += Config::kStagedColumns) {
#pragma unroll
      for (int column = 0; column < Config::kStagedColumns; column += 8) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = lane / 4 + 8 * half;
          const int i = block * (Config::kTileN / 2) + (first + column) / 2 + 2 * half;
          const Vec<float, 2> acc = {sums[i], sums[i + 1]};
          const int own = column + lane % 4 * 2;
          visit(half, 64 * block + row, first + own, (line + row) * Config::kStagedPitch + own,
                acc);
        }
        columns(64 * block, first + column);
        if ((first + column) % 32 == 24) rows(64 * block, first + column - 24);
      }
      __syncwarp();
      leave(64 * block, first, line * Config::kStagedPitch);
      __syncwarp();
    }
  }
}

}  // namespace fusec
