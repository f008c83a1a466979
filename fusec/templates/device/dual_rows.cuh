// Visits the accumulators of a dual GEMM in pairs (staged_rows.cuh has the single GEMM). The
// accumulators of the two products are adjacent, kColumns columns each. `Config` is the struct at
// the top of the kernel.
#pragma once

#include "staged_rows.cuh"

namespace fusec {

// Calls visit(row, column, place, acc, acc2) for the pairs of both products at each position; leave
// is that of visit_places. Called by one warp.
template <class Config, class Visit, class Leave>
__device__ __forceinline__ void visit_dual_pairs(
    const float (&accumulators)[Config::kAccumulators], const Visit& visit, const Leave& leave) {
  const auto of_pair = [&](int i, int, int row, int column, int place) {
    const int j = i + Config::kColumns / 2;
    const Vec<float, 2> acc = {accumulators[i], accumulators[i + 1]};
    const Vec<float, 2> acc2 = {accumulators[j], accumulators[j + 1]};
    visit(row, column, place, acc, acc2);
  };
  visit_places<Config, Config::kColumns>(of_pair, [](int, int) {}, leave);
}

}  // namespace fusec
