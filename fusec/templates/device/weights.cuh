// Exact conversion of 8- and 4-bit integers to 16-bit floats, two of them in three or four
// instructions: the integer becomes the low bits of a float that is large enough for its last
// mantissa bit to be 1.
#pragma once

#include "types.cuh"
#include "vector.cuh"

namespace fusec {

// Returns a * b + c for two 16-bit floats each, rounded once.
template <class T>
__device__ __forceinline__ u32 multiply_add_pair(u32 a, u32 b, u32 c) {
  u32 result;
  if constexpr (kIsSame<T, bf16>) {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  } else {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  }
  return result;
}

// Returns a - b for two 16-bit floats each.
template <class T>
__device__ __forceinline__ u32 subtract_pair(u32 a, u32 b) {
  return multiply_add_pair<T>(b, kIsSame<T, bf16> ? 0xbf80bf80u : 0xbc00bc00u, a);
}

// Returns a * b for two 16-bit floats each: adding -0 does not change a product.
template <class T>
__device__ __forceinline__ u32 multiply_pair(u32 a, u32 b) {
  return multiply_add_pair<T>(a, b, 0x80008000u);
}

// Returns (a & mask) | c in one instruction, which allows only one operand that is not a register.
__device__ __forceinline__ u32 and_or(u32 a, u32 mask, u32 c) {
  u32 result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(a), "r"(mask), "r"(c));
  return result;
}

// Two floats whose last mantissa bit is 1: 128 in bf16, 1024 in fp16.
template <class T>
inline constexpr u32 kLargePair = kIsSame<T, bf16> ? 0x43004300u : 0x64006400u;

// Converts two 8-bit integers, each duplicated in both bytes of its 16 bits. The sign bit is
// subtracted with its own weight.
template <class T>
__device__ __forceinline__ u32 widen_pair(u32 twice) {
  constexpr u32 kLarge = kLargePair<T>;
  return subtract_pair<T>(and_or(twice, 0x007f007fu, kLarge), and_or(twice, 0x00800080u, kLarge));
}

// Returns a number that is exact in T, duplicated in both halves.
template <class T>
__device__ __forceinline__ u32 number_pair(int number) {
  return convert<T>(static_cast<float>(number)).bits * 0x10001u;
}

// Returns two weights minus their zero points, times their scales; rounds at each step.
template <class Config>
__device__ __forceinline__ u32 weigh_pair(u32 pair, u32 zeros, u32 scales) {
  using T = typename Config::T;
  if constexpr (Config::kLowered) {
    if constexpr (Config::kRaised != 0) {
      pair = subtract_pair<T>(pair, number_pair<T>(-Config::kRaised));
    }
    pair = subtract_pair<T>(pair, zeros);
  }
  if constexpr (Config::kScaled) pair = multiply_pair<T>(pair, scales);
  return pair;
}

// How 16 bytes of a column of 8-bit weights become pairs of 16-bit floats, and the matching order
// of rows of A. kFlip: mask that is XORed into four bytes of weights.
template <class T, u32 kFlip = 0>
struct Bytes {
  static constexpr int kPairs = 8;
  static constexpr int kNeighbours = 1;  // weights per byte

  // Returns two neighbours, the first at `place`.
  __device__ static __forceinline__ u32 neighbours(const unsigned char* place) {
    const u32 both = *reinterpret_cast<const u16*>(place) ^ (kFlip & 0xffffu);
    return widen_pair<T>(__byte_perm(both, 0, 0x1100));
  }

  // Returns two neighbours along K of one of several columns, given the bytes of one line and the
  // next.
  __device__ static __forceinline__ u32 across(u32 first, u32 next, int column) {
    return widen_pair<T>(__byte_perm(first ^ kFlip, next ^ kFlip, 0x4400 + column * 0x1111));
  }

  __device__ static __forceinline__ u32 pair(const Vec<u32, 4>& words, int i) {
    return widen_pair<T>(__byte_perm(words[i / 2] ^ kFlip, 0, i % 2 == 0 ? 0x1100 : 0x3322));
  }
  __device__ static __forceinline__ u32 row(const u32* words, int i) { return words[i]; }
};

// The same for 4-bit weights, minus 8: a byte holds two neighbours, the first in its low bits. A
// pair consists of elements i and i + 4 of eight.
template <class T, u32 kFlip = 0, bool kLifted = false>
struct Nibbles {
  static constexpr int kPairs = 16;
  static constexpr int kNeighbours = 2;

  // Converts the low four bits of each 16-bit half; other bits are ignored.
  __device__ static __forceinline__ u32 unbiased(u32 bits) {
    constexpr u32 kLarge = kLargePair<T>;
    const u32 pair = and_or(bits, 0x000f000fu, kLarge);
    return kLifted ? pair : subtract_pair<T>(pair, kLarge + 0x00080008u);
  }
  __device__ static __forceinline__ u32 neighbours(const unsigned char* place) {
    return unbiased((*place ^ (kFlip & 0xffu)) * 0x1001u);
  }

  // As Bytes::across, with two columns per byte.
  __device__ static __forceinline__ u32 across(u32 first, u32 next, int column) {
    const u32 both = __byte_perm(first ^ kFlip, next ^ kFlip, 0x4400 + column / 2 * 0x1111);
    return unbiased(both >> column % 2 * 4);
  }
  // Converts both weights of one of four bytes.
  __device__ static __forceinline__ u32 both(u32 bytes, int i) {
    return unbiased(__byte_perm(bytes ^ kFlip, 0, 0x4440 + i) * 0x1001u);
  }

  __device__ static __forceinline__ u32 pair(const Vec<u32, 4>& words, int i) {
    return unbiased((words[i / 4] ^ kFlip) >> i % 4 * 4);
  }
  __device__ static __forceinline__ u32 row(const u32* words, int i) {
    const u32* const eight = words + i / 4 * 4 + i % 4 / 2;
    return __byte_perm(eight[0], eight[2], i % 2 == 0 ? 0x5410 : 0x7632);
  }
};

// As Nibbles, without subtracting kLargePair and 8: the zero points account for them.
template <class T, u32 kFlip = 0>
using Lifted = Nibbles<T, kFlip, true>;

}  // namespace fusec
