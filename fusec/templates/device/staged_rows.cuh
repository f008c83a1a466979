// Stages the tensors that an epilogue reads and writes in shared memory. wgmma leaves pairs of
// neighbouring columns, eight rows by four pairs per warp, whose direct access would not fill a
// memory sector; rows in shared memory are copied with 16 bytes per lane. Every warp has rows of
// its own, so only its lanes synchronize. `Config` is the struct at the top of the kernel:
// kStagedRows rows of kStagedColumns columns are staged at a time, with a pitch of kStagedPitch
// elements that puts pairs of eight rows into different banks.
#pragma once

#include "async_copy.cuh"
#include "vector.cuh"

namespace fusec {

// Returns the lane ID. Values derived from it stay in the epilogue: with threadIdx.x, ptxas hoists
// them into the main loop, which delays warpgroups that promote partial sums.
__device__ __forceinline__ int own_lane() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

// Returns this warp's rows of a tensor in `slot`.
template <class Config, class T>
__device__ __forceinline__ T* rows_of_warp(unsigned char* slot) {
  return reinterpret_cast<T*>(slot) +
         threadIdx.x / 32 * (Config::kStagedRows * Config::kStagedPitch);
}

// One warp: starts copying its rows of a tile, the first 16 of every 64, from at(row, column).
// `rows` and `columns` remain in the tensor. Followed by wait_for_rows.
template <class Config, class T, class At>
__device__ __forceinline__ void fetch_rows(T* staged, const At& at, int rows, int columns) {
  constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  constexpr int kVectors = Config::kStagedColumns / kVector;
  static_assert(Config::kStagedColumns % kVector == 0);
  const int lane = own_lane();
#pragma unroll 2
  for (int first = 0; first < Config::kStagedRows * kVectors; first += 32) {
    const int number = first + lane;
    const int line = number / kVectors;
    const int row = line / 16 * 64 + line % 16;
    const int column = number % kVectors * kVector;
    if (number < Config::kStagedRows * kVectors && row < rows && column < columns) {
      copy_async_16(staged + line * Config::kStagedPitch + column, at(row, column));
    }
  }
  copy_commit();
}

// One warp: waits for the rows that its lanes started to copy.
__device__ __forceinline__ void wait_for_rows() {
  copy_wait<0>();
  __syncwarp();
}

// One warp: stores 16 rows to at(row, column). The caller synchronizes the warp first.
template <class Config, class T, class At>
__device__ __forceinline__ void store_rows(const T* staged, const At& at, int rows, int columns) {
  constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  constexpr int kVectors = Config::kStagedColumns / kVector;
  const int lane = own_lane();
  if constexpr (32 % kVectors == 0) {
    // A lane keeps its columns, so addresses follow from the first one. Without a loop, ptxas
    // serializes wgmma in kernels whose epilogue has no branch.
    constexpr int kRows = 32 / kVectors;
    constexpr int kAhead = kRows < 16 ? 2 : 1;
    const int first = lane / kVectors;
    const int column = lane % kVectors * kVector;
    if (column >= columns) return;
    if constexpr (kRows > 16) {
      if (first >= 16) return;  // the warp holds 16 rows
    }
#pragma unroll 1
    for (int line = 0; line < 16; line += kAhead * kRows) {
      Vec<T, kVector> vectors[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int row = first + line + i * kRows;
        vectors[i] = load<kVector>(staged + row * Config::kStagedPitch + column);
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int row = first + line + i * kRows;
        if (row < rows) store(at(row, column), vectors[i]);
      }
    }
  } else {
#pragma unroll 2
    for (int first = 0; first < 16 * kVectors; first += 32) {
      const int number = first + lane;
      const int row = number / kVectors;
      const int column = number % kVectors * kVector;
      if (number < 16 * kVectors && row < rows && column < columns) {
        store(at(row, column), load<kVector>(staged + row * Config::kStagedPitch + column));
      }
    }
  }
}

// One warp: calls visit(i, half, row, column, place) for all pairs of its accumulators i and i + 1,
// in the first 16 rows of every 64 of a tile with kColumns columns. `half` selects row r or r + 8;
// `place` is the offset of the pair in the staged rows. Calls after(row, column) after every eight
// columns, and leave(row, column, place) after 16 rows of kStagedColumns columns.
template <class Config, int kColumns, class Visit, class After, class Leave>
__device__ __forceinline__ void visit_places(const Visit& visit, const After& after,
                                             const Leave& leave) {
  constexpr int kBlocks = Config::kAccumulators / (Config::kTileN / 2);
  const int lane = own_lane();
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    const int line = Config::kStagedRows == 16 ? 0 : 16 * block;
#pragma unroll
    for (int first = 0; first < kColumns; first += Config::kStagedColumns) {
#pragma unroll
      for (int column = 0; column < Config::kStagedColumns; column += 8) {
        if (first + column >= kColumns) break;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = lane / 4 + 8 * half;
          const int i = block * (Config::kTileN / 2) + (first + column) / 2 + 2 * half;
          const int own = column + lane % 4 * 2;
          visit(i, half, 64 * block + row, first + own, (line + row) * Config::kStagedPitch + own);
        }
        after(64 * block, first + column);
      }
      __syncwarp();
      leave(64 * block, first, line * Config::kStagedPitch);
      __syncwarp();
    }
  }
}

// One warp: calls visit(row, column, place, acc) for the same pairs; leave is that of visit_places.
template <class Config, class Visit, class Leave>
__device__ __forceinline__ void visit_pairs(const float (&accumulators)[Config::kAccumulators],
                                            const Visit& visit, const Leave& leave) {
  const auto of_pair = [&](int i, int, int row, int column, int place) {
    const Vec<float, 2> acc = {accumulators[i], accumulators[i + 1]};
    visit(row, column, place, acc);
  };
  visit_places<Config, Config::kTileN>(of_pair, [](int, int) {}, leave);
}

}  // namespace fusec
