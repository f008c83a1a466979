// Stores the staged rows of an epilogue to rows with any alignment (staged_rows.cuh: rows aligned
// to 16 bytes). Such a row has the same offset from a multiple of 16 bytes in shared memory as in
// global memory, so vectors are whole in both. `Config` is the struct at the top of the kernel:
// kStagedPitch has space for a vector after kStagedColumns elements.
#pragma once

#include "shifted.cuh"
#include "staged_rows.cuh"

namespace fusec {

// One warp: stores 16 rows to at(row, column): first the vectors that are entirely in a row, then
// the elements before the first and after the last of them. The caller synchronizes the warp first.
template <class Config, class T, class At>
__device__ __forceinline__ void store_shifted_rows(const T* staged, const At& at, int rows,
                                                   int columns) {
  constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  constexpr int kVectors = Config::kStagedColumns / kVector;
  static_assert(Config::kStagedPitch >= Config::kStagedColumns + kVector);
  const int lane = own_lane();
  const int count = columns < Config::kStagedColumns ? columns : Config::kStagedColumns;
#pragma unroll 2
  for (int first = 0; first < 16 * kVectors; first += 32) {
    const int number = first + lane;
    const int row = number / kVectors;
    if (number < 16 * kVectors && row < rows) {
      T* const run = at(row, 0);
      const int shift = shift_of<kVector>(run);
      const int column = number % kVectors * kVector + (kVector - shift) % kVector;
      if (column + kVector <= count) {
        store(run + column, load<kVector>(staged + row * Config::kStagedPitch + shift + column));
      }
    }
  }
  constexpr int kRows = 32 / (2 * kVector);  // one lane per element of two vectors of a row
#pragma unroll 2
  for (int first = 0; first < 16; first += kRows) {
    const int row = first + lane / (2 * kVector);
    if (row < rows) {
      T* const run = at(row, 0);
      const int shift = shift_of<kVector>(run);
      const int before = (kVector - shift) % kVector;
      const int whole = count > before ? (count - before) / kVector * kVector : 0;
      const int place = lane % (2 * kVector);
      const int column = place < kVector ? place : before + whole + place - kVector;
      if (column < count && (place >= kVector || column < before)) {
        run[column] = staged[row * Config::kStagedPitch + shift + column];
      }
    }
  }
}

// One warp: as visit_pairs, but calls visit(row, column, place, acc) for one element at a time.
template <class Config, class Visit, class Leave>
__device__ __forceinline__ void visit_elements(const float (&sums)[Config::kAccumulators],
                                               const Visit& visit, const Leave& leave) {
  const auto visit_pair = [&](int row, int column, int place, const Vec<float, 2>& acc) {
    visit(row, column, place, Vec<float, 1>{acc[0]});
    visit(row, column + 1, place + 1, Vec<float, 1>{acc[1]});
  };
  visit_pairs<Config>(sums, visit_pair, leave);
}

}  // namespace fusec
