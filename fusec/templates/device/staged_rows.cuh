// What the epilogue of a tensor-core tile reads and writes of tensors with the rows of the tile, in
// shared memory. Sums lie in pairs of neighbouring columns, eight rows by four pairs a warp, which
// fill no sector of memory; rows in shared memory are moved whole, 16 bytes a lane. Every warp has
// rows of its own: only its lanes wait for each other. `Config` is the struct at the top of the
// kernel: of kStagedColumns columns kStagedRows rows are there at a time, kStagedPitch elements
// apart, so that pairs of eight rows lie in different banks.
#pragma once

#include "async_copy.cuh"
#include "vector.cuh"

namespace fusec {

// The thread's number in its warp. What is computed of it stays behind the products: of threadIdx.x
// ptxas computes it in each round of the loop before, where warpgroups that promote sums wait for
// it.
__device__ __forceinline__ int own_lane() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

// This warp's rows of a tensor, at `slot`.
template <class Config, class T>
__device__ __forceinline__ T* rows_of_warp(unsigned char* slot) {
  return reinterpret_cast<T*>(slot) +
         threadIdx.x / 32 * (Config::kStagedRows * Config::kStagedPitch);
}

// One warp: begins to copy its rows of a tile, the first 16 of every 64, from where at(row, column)
// points; `rows` and `columns` are left of the tensor. wait_for_rows follows.
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

// One warp: waits for the rows that all its lanes have begun to copy.
__device__ __forceinline__ void wait_for_rows() {
  copy_wait<0>();
  __syncwarp();
}

// One warp: stores 16 rows to where at(row, column) points. A barrier of the warp stands before.
template <class Config, class T, class At>
__device__ __forceinline__ void store_rows(const T* staged, const At& at, int rows, int columns) {
  constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  constexpr int kVectors = Config::kStagedColumns / kVector;
  const int lane = own_lane();
  if constexpr (32 % kVectors == 0) {
    // Lanes stay in their columns, so that addresses follow from the first one's. Without a loop,
    // ptxas serialises wgmma where an epilogue has no branch.
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

// One warp: visit(i, half, row, column, place) for all pairs of its sums, the first 16 rows of
// every 64 of a tile, of kColumns columns: numbers i and i + 1 of a thread's sums; `half` says
// which of two rows, eight apart, `place` is the pair's in staged rows. after(row, column) follows
// eight columns, leave(row, column, place) 16 rows of kStagedColumns columns.
template <class Config, int kColumns, class Visit, class After, class Leave>
__device__ __forceinline__ void visit_places(const Visit& visit, const After& after,
                                             const Leave& leave) {
  constexpr int kBlocks = Config::kSumsOwn / (Config::kTileN / 2);
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

// One warp: visit(row, column, place, acc) for the same pairs; leave as there.
template <class Config, class Visit, class Leave>
__device__ __forceinline__ void visit_pairs(const float (&sums)[Config::kSumsOwn],
                                            const Visit& visit, const Leave& leave) {
  const auto of_pair = [&](int i, int, int row, int column, int place) {
    const Vec<float, 2> acc = {sums[i], sums[i + 1]};
    visit(row, column, place, acc);
  };
  visit_places<Config, Config::kTileN>(of_pair, [](int, int) {}, leave);
}

}  // namespace fusec
