// Partial reductions of a tile's results within a warp: one value per row and 32 columns, or per
// column and 16 rows. Accumulators are pairs of neighbouring columns, eight rows by four pairs per
// warp. Op is a combiner of combine.cuh; terms are combined in a fixed order.
#pragma once

#include "reduce.cuh"
#include "staged_rows.cuh"

namespace fusec {

// Totals of the two rows r and r + 8 that a lane holds; `half` is a compile-time constant.
template <class Op>
struct RowTotals {
  float held[2] = {Op::identity(), Op::identity()};

  __device__ __forceinline__ void take(int, int half, const Vec<float, 2>& terms, bool inside) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (inside) held[half] = Op::combine(held[half], terms[i]);
    }
  }

  // All lanes of the warp: calls put(row, 0, total) for 16 rows, after every 32 columns.
  template <class Put>
  __device__ __forceinline__ void leave(const Put& put) {
    const int lane = own_lane();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = warp_reduce<Op, 4>(held[half]);
      if (lane % 4 == 0) put(lane / 4 + 8 * half, 0, total);
      held[half] = Op::identity();
    }
  }
};

// Totals of the columns that a lane holds in four blocks of eight; `block` and `half` are
// compile-time constants.
template <class Op>
struct ColumnTotals {
  float held[8];

  __device__ __forceinline__ void take(int block, int half, const Vec<float, 2>& terms,
                                       bool inside) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float& own = held[2 * block + i];
      if (half == 0) own = Op::identity();
      if (inside) own = Op::combine(own, terms[i]);
    }
  }

  // All lanes of the warp: calls put(0, column, total) for 32 columns, after both rows. In each
  // round a lane sends half of its totals to another one, until each lane has one column.
  template <class Put>
  __device__ __forceinline__ void leave(const Put& put) {
    const int lane = own_lane();
#pragma unroll
    for (int count = 4; count > 0; count /= 2) {
      const bool upper = (lane & 4 * count) != 0;
#pragma unroll
      for (int i = 0; i < count; ++i) {
        const float kept = upper ? held[i + count] : held[i];
        const float given = upper ? held[i] : held[i + count];
        held[i] = Op::combine(kept, shuffle_xor(given, 4 * count));
      }
    }
    const int number = lane / 4;
    put(0, number / 2 * 8 + lane % 4 * 2 + number % 2, held[0]);
  }
};

// One warp: as visit_pairs, with visit(block, half, row, column, place, acc): `block` is the block
// of eight columns in 32, `half` selects row r or r + 8. Calls reduced(row, column) after every 16
// rows of 32 columns.
template <class Config, class Visit, class Reduced, class Leave>
__device__ __forceinline__ void visit_summed_pairs(
    const float (&accumulators)[Config::kAccumulators], const Visit& visit, const Reduced& reduced,
    const Leave& leave) {
  static_assert(Config::kTileN % 32 == 0);
  const auto of_pair = [&](int i, int half, int row, int column, int place) {
    const Vec<float, 2> acc = {accumulators[i], accumulators[i + 1]};
    visit(i % (Config::kTileN / 2) / 4 % 4, half, row, column, place, acc);
  };
  const auto after = [&](int row, int column) {
    if (column % 32 == 24) reduced(row, column - 24);
  };
  visit_places<Config, Config::kTileN>(of_pair, after, leave);
}

}  // namespace fusec
