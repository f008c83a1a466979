// Consecutive rows that a block copies to shared memory, and reads from there by whole vectors, at
// any alignment of the rows. Each function is called by all threads of the block. Tiles are aligned
// to 16 bytes, runs in global memory need not be.
#pragma once

#include "async_copy.cuh"
#include "shifted.cuh"

namespace fusec {

__device__ __forceinline__ int thread_of_block() { return threadIdx.y * blockDim.x + threadIdx.x; }

// Starts copying `count` contiguous elements, and returns the address of the first copy: it has the
// same offset from a multiple of 16 bytes as in global memory. kElements: upper bound of that
// offset plus `count`, a multiple of 16 bytes.
template <int kThreads, int kElements, class T>
__device__ __forceinline__ T* load_tile_rows(T* tile, const T* run, int count) {
  constexpr int kWide = 16 / sizeof(T);
  static_assert(kElements % kWide == 0);
  const int before = shift_of<kWide>(run);
  const int end = before + count;
  const int thread = thread_of_block();
#pragma unroll
  for (int first = 0; first < kElements; first += kThreads * kWide) {
    const int i = first + thread * kWide;
    if (i >= before && i + kWide <= end) copy_async_16(tile + i, run + (i - before));
  }
  // The elements at both ends are copied one by one.
  const int rest = end / kWide * kWide + thread;
  if (rest >= before && rest < end) tile[rest] = run[rest - before];
  if (before > 0 && thread >= before && thread < min(kWide, end / kWide * kWide)) {
    tile[thread] = run[thread - before];
  }
  return tile + before;
}

// Copies rows whose columns have a stride of `pitch`, kWide adjacent rows of a column at a time.
// count: the number of rows, at most kRows, a multiple of kWide; kPitch: elements between rows of
// the tile. Each thread has rows of its own and steps from column to column; it stores two columns
// of 16-bit elements at a time if these form an aligned word.
template <int kThreads, int kRows, int kColumns, int kPitch, int kWide, class T>
__device__ __forceinline__ void load_tile_transposed(T* tile, const T* run, i64 pitch, int count) {
  constexpr int kPair = sizeof(T) == 2 && kPitch % 2 == 0 && kColumns % 2 == 0 ? 2 : 1;
  constexpr int kAcross = kRows / kWide < kThreads ? kRows / kWide : kThreads;
  constexpr int kLines = kThreads / kAcross * kPair;
  static_assert(kRows % (kAcross * kWide) == 0 && kThreads % kAcross == 0);
  // A thread has up to 16 loads in flight.
  constexpr int kSteps = (kColumns + kLines - 1) / kLines;
  constexpr int kTurns = (kSteps * kPair + 15) / 16;
  constexpr int kFlight = (kSteps + kTurns - 1) / kTurns;
  const int thread = thread_of_block();
  const int line = thread / kAcross * kPair;
#pragma unroll 1
  for (int row = thread % kAcross * kWide; row < count; row += kAcross * kWide) {
    const T* source = run + row + line * pitch;
    T* target = tile + row * kPitch + line;
#pragma unroll
    for (int first = 0; first < kSteps; first += kFlight) {
      Vec<T, kWide> loaded[kFlight][kPair];
#pragma unroll
      for (int k = 0; k < kFlight; ++k) {
        const int column = (first + k) * kLines;
        const bool inside = column + kLines <= kColumns || column + line < kColumns;
#pragma unroll
        for (int p = 0; p < kPair; ++p) {
          if (inside) loaded[k][p] = load<kWide>(source + p * pitch);
        }
        source += kLines * pitch;
      }
#pragma unroll
      for (int k = 0; k < kFlight; ++k) {
        const int column = (first + k) * kLines;
        const bool inside = column + kLines <= kColumns || column + line < kColumns;
#pragma unroll
        for (int v = 0; v < kWide; ++v) {
          Vec<T, kPair> pair;
#pragma unroll
          for (int p = 0; p < kPair; ++p) pair[p] = loaded[k][p][v];
          if (inside) store(target + v * kPitch + column, pair);
        }
      }
    }
  }
}

// Waits for the copies of the block.
__device__ __forceinline__ void rows_arrived() {
  copy_commit();
  copy_wait<0>();
  __syncthreads();
}

// Stores `count` contiguous elements of shared memory, at the same offset from a multiple of 16
// bytes. Called after all threads have written theirs to shared memory.
template <int kThreads, int kElements, class T>
__device__ __forceinline__ void store_tile_rows(T* run, const T* rows, int count) {
  constexpr int kWide = 16 / sizeof(T);
  static_assert(kElements % kWide == 0);
  const int before = shift_of<kWide>(run);
  const int end = before + count;
  const int thread = thread_of_block();
#pragma unroll
  for (int first = 0; first < kElements; first += kThreads * kWide) {
    const int i = first + thread * kWide - before;
    if (i >= 0 && i + kWide <= count) store(run + i, load<kWide>(rows + i));
  }
  const int rest = end / kWide * kWide + thread;
  if (rest >= before && rest < end) run[rest - before] = rows[rest - before];
  if (before > 0 && thread >= before && thread < min(kWide, end / kWide * kWide)) {
    run[thread - before] = rows[thread - before];
  }
}

}  // namespace fusec
