// Scales and zero points of a GEMM operand that vary along K.
#pragma once

#include "l2_policy.cuh"
#include "types.cuh"
#include "vector.cuh"

namespace fusec {

// Loads an element of 8 or 16 bits, zero-extended.
template <class T>
__device__ __forceinline__ u32 load_bits(const T* source) {
  static_assert(sizeof(T) <= 2);
  if constexpr (sizeof(T) == 1) return __ldg(reinterpret_cast<const unsigned char*>(source));
  return __ldg(reinterpret_cast<const u16*>(source));
}

// The scales of an operand's rows (or columns) from `position` on, of `extent` in total: one per
// kRows rows and per group of elements of K. `step` is the index of a group.
template <int kRows, class S, class Index>
struct BlockScales {
  using Value = S;
  const S* first;
  Index position;
  Index extent;
  Index stride;
  Index depth_stride;

  __device__ __forceinline__ float at(int row, int step) const {
    return to_float(value(row, step));
  }
  __device__ __forceinline__ S value(int row, int step) const {
    return load_readonly(place(row, step))[0];
  }
  // Returns the bits in memory.
  __device__ __forceinline__ u32 bits(int row, int step) const {
    return load_bits(place(row, step));
  }
  __device__ __forceinline__ const S* place(int row, int step) const {
    const Index wanted = position + row;
    const Index last = extent - 1;
    return first + (wanted < last ? wanted : last) / kRows * stride + step * depth_stride;
  }
  // Prefetches the scales of kTileRows rows and of steps [begin, end) into L2. `own` is the index
  // of the calling thread among `count` otherwise idle threads.
  template <int kTileRows>
  __device__ __forceinline__ void prefetch(int begin, int end, int own, int count) const {
    constexpr int kSector = kSectorBytes / sizeof(S);
    const bool are_rows = stride == 1;  // rows are contiguous, else steps
    const int length = are_rows ? (kTileRows + kRows - 1) / kRows : end - begin;
    const int runs = are_rows ? end - begin : (kTileRows + kRows - 1) / kRows;
    const int each = are_rows || depth_stride == 1 ? kSector : 1;
    const int parts = (length + each - 2) / each + 1;  // the last starts at the end of a run
    for (int i = own; i < runs * parts; i += count) {
      const int run = i / parts;
      const int within = i % parts * each < length ? i % parts * each : length - 1;
      prefetch_l2(are_rows ? place(within * kRows, begin + run)
                           : place(run * kRows, begin + within));
    }
  }
};

// The layout of zero points in memory. The `ZeroPoints` of a kernel derives from this struct and
// overrides what differs.
struct PlainZeroPoints {
  static constexpr int kRowsOfByte = 1;    // rows per byte, the first in its low four bits
  static constexpr int kGroupsOfByte = 1;  // groups per byte
  static constexpr int kFlip = 0;          // mask that is XORed into each of them
  static constexpr int kAdded = 0;         // added to each of them
};

// The zero points of an operand, one per scale: floats of type T, used unchanged, or integers, to
// which kAdded is added.
template <class Policy, class Values>
struct ZeroPointsOf {
  using Value = typename Values::Value;
  Values values;

  // Returns the bits in memory.
  __device__ __forceinline__ u32 bits(int row, int group) const {
    return values.bits(row, group / Policy::kGroupsOfByte);
  }
  template <int kTileRows>
  __device__ __forceinline__ void prefetch(int begin, int end, int own, int count) const {
    constexpr int kEach = Policy::kGroupsOfByte;
    values.template prefetch<kTileRows>(begin / kEach, (end + kEach - 1) / kEach, own, count);
  }
  // Converts the bits `found` of a zero point to a T, duplicated in both halves of a word.
  template <class T>
  __device__ __forceinline__ u32 pair_of(u32 found, int row, int group) const {
    if constexpr (kIsSame<Value, T>) {
      return found * 0x10001u;
    } else {
      int number = static_cast<Value>(found);
      if constexpr (Policy::kRowsOfByte * Policy::kGroupsOfByte == 2) {
        const bool is_second = (Policy::kGroupsOfByte == 2 ? group : values.position + row) % 2;
        number = (number >> (is_second ? 4 : 0) & 15) ^ Policy::kFlip;
      }
      return convert<T>(static_cast<float>(number + Policy::kAdded)).bits * 0x10001u;
    }
  }
  template <class T>
  __device__ __forceinline__ u32 pair(int row, int group) const {
    return pair_of<T>(bits(row, group), row, group);
  }
};

template <class Policy = PlainZeroPoints, class Values>
__device__ __forceinline__ ZeroPointsOf<Policy, Values> zero_points(const Values& values) {
  return {values};
}

// An operand without scales.
struct Unscaled {
  __device__ __forceinline__ float at(int, int) const { return 1.0f; }
};

}  // namespace fusec
