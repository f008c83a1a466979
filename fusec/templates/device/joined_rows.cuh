// The pairs of two tiles of sums side by side, of products that are joined (staged_rows.cuh, for
// one tile). `Config` is the struct at the top of the kernel; each tile has kColumns columns.
#pragma once

#include "staged_rows.cuh"

namespace fusec {

// One warp: visit(row, column, place, acc, acc2) for the pairs of both tiles at a place; leave as
// that of visit_places.
template <class Config, class Visit, class Leave>
__device__ __forceinline__ void visit_joined_pairs(const float (&sums)[Config::kSumsOwn],
                                                   const Visit& visit, const Leave& leave) {
  const auto of_pair = [&](int i, int, int row, int column, int place) {
    const int j = i + Config::kColumns / 2;
    const Vec<float, 2> acc = {sums[i], sums[i + 1]};
    const Vec<float, 2> acc2 = {sums[j], sums[j + 1]};
    visit(row, column, place, acc, acc2);
  };
  visit_places<Config, Config::kColumns>(of_pair, [](int, int) {}, leave);
}

}  // namespace fusec
