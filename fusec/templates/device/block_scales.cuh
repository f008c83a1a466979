// Factors of a GEMM operand that vary along K.
#pragma once

#include "l2_policy.cuh"
#include "types.cuh"
#include "vector.cuh"

namespace fusec {

// One element of 8 or 16 bits: these, and zeros above them.
template <class T>
__device__ __forceinline__ u32 load_bits(const T* source) {
  static_assert(sizeof(T) <= 2);
  if constexpr (sizeof(T) == 1) return __ldg(reinterpret_cast<const unsigned char*>(source));
  return __ldg(reinterpret_cast<const u16*>(source));
}

// The scales of an operand's rows (or columns) from `position` on, of `extent` in all: one for
// kRows of them and for each group of elements of K, which are counted by `step`.
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
  // In the layout of global memory.
  __device__ __forceinline__ u32 bits(int row, int step) const {
    return load_bits(place(row, step));
  }
  __device__ __forceinline__ const S* place(int row, int step) const {
    const Index wanted = position + row;
    const Index last = extent - 1;
    return first + (wanted < last ? wanted : last) / kRows * stride + step * depth_stride;
  }
  // Of `count` threads that have nothing else to do the own-th: those of kTileRows rows, steps
  // `begin` to before `end`, are fetched into L2.
  template <int kTileRows>
  __device__ __forceinline__ void prefetch(int begin, int end, int own, int count) const {
    constexpr int kSector = kSectorBytes / sizeof(S);
    const bool are_rows = stride == 1;  // that are neighbours in memory, else steps
    const int length = are_rows ? (kTileRows + kRows - 1) / kRows : end - begin;
    const int runs = are_rows ? end - begin : (kTileRows + kRows - 1) / kRows;
    const int each = are_rows || depth_stride == 1 ? kSector : 1;
    const int parts = (length + each - 2) / each + 1;  // the last begins at the last of a run
    for (int i = own; i < runs * parts; i += count) {
      const int run = i / parts;
      const int within = i % parts * each < length ? i % parts * each : length - 1;
      prefetch_l2(are_rows ? place(within * kRows, begin + run)
                           : place(run * kRows, begin + within));
    }
  }
};

// How zero points lie in memory; the `ZeroPoints` of a kernel derives from it and says in what they
// differ.
struct PlainZeroPoints {
  static constexpr int kRowsOfByte = 1;    // rows that share a byte, the first its low four bits
  static constexpr int kGroupsOfByte = 1;  // groups that do
  static constexpr int kFlip = 0;          // bits that are the other way round
  static constexpr int kAdded = 0;         // to each of them
};

// What is taken off integers of an operand: as many as scales, halves as they are, or integers,
// plus what is added.
template <class Policy, class Values>
struct ZeroPointsOf {
  using Value = typename Values::Value;
  Values values;

  // In the layout of global memory.
  __device__ __forceinline__ u32 bits(int row, int group) const {
    return values.bits(row, group / Policy::kGroupsOfByte);
  }
  template <int kTileRows>
  __device__ __forceinline__ void prefetch(int begin, int end, int own, int count) const {
    constexpr int kEach = Policy::kGroupsOfByte;
    values.template prefetch<kTileRows>(begin / kEach, (end + kEach - 1) / kEach, own, count);
  }
  // That, twice, as a half.
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
