// Integers of 8 and 4 bits as halves, exactly, two of them with three or four instructions: they
// become the last bits of a number that is large enough for its last bit to be worth 1.
#pragma once

#include "types.cuh"
#include "vector.cuh"

namespace fusec {

// a * b + c of two halves each, rounded once.
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

// a - b of two halves each.
template <class T>
__device__ __forceinline__ u32 subtract_pair(u32 a, u32 b) {
  return multiply_add_pair<T>(b, kIsSame<T, bf16> ? 0xbf80bf80u : 0xbc00bc00u, a);
}

// a * b of two halves each: minus zero is added, which changes nothing.
template <class T>
__device__ __forceinline__ u32 multiply_pair(u32 a, u32 b) {
  return multiply_add_pair<T>(a, b, 0x80008000u);
}

// (a & mask) | c in one instruction, of which only one operand is not in a register.
__device__ __forceinline__ u32 and_or(u32 a, u32 mask, u32 c) {
  u32 result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(a), "r"(mask), "r"(c));
  return result;
}

// Two halves whose last bit is worth 1: 128, or 1024 of f16.
template <class T>
inline constexpr u32 kLargePair = kIsSame<T, bf16> ? 0x43004300u : 0x64006400u;

// Two 8-bit integers, each twice in its 16 bits. The sign is worth as much as it takes away.
template <class T>
__device__ __forceinline__ u32 widen_pair(u32 twice) {
  constexpr u32 kLarge = kLargePair<T>;
  return subtract_pair<T>(and_or(twice, 0x007f007fu, kLarge), and_or(twice, 0x00800080u, kLarge));
}

// A number that is a half, twice.
template <class T>
__device__ __forceinline__ u32 number_pair(int number) {
  return convert<T>(static_cast<float>(number)).bits * 0x10001u;
}

// Two weights less their zero points, times their scales: rounded at each step.
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

// What 16 bytes of a column of weights are as pairs of halves, and rows of A in the same order. kFlip:
// the bits of four bytes that are the other way round.
template <class T, u32 kFlip = 0>
struct Bytes {
  static constexpr int kPairs = 8;
  static constexpr int kNeighbours = 1;  // weights of a byte

  // Two neighbours, of which the first begins at `place`.
  __device__ static __forceinline__ u32 neighbours(const unsigned char* place) {
    const u32 both = *reinterpret_cast<const u16*>(place) ^ (kFlip & 0xffffu);
    return widen_pair<T>(__byte_perm(both, 0, 0x1100));
  }

  // Two neighbours along K of one of several columns, whose bytes these are, one line and the next.
  __device__ static __forceinline__ u32 across(u32 first, u32 next, int column) {
    return widen_pair<T>(__byte_perm(first ^ kFlip, next ^ kFlip, 0x4400 + column * 0x1111));
  }

  __device__ static __forceinline__ u32 pair(const Vec<u32, 4>& words, int i) {
    return widen_pair<T>(__byte_perm(words[i / 2] ^ kFlip, 0, i % 2 == 0 ? 0x1100 : 0x3322));
  }
  __device__ static __forceinline__ u32 row(const u32* words, int i) { return words[i]; }
};

// Of weights of 4 bits, less 8: a byte holds two neighbours, the first in its low bits. A pair has
// every fourth of eight.
template <class T, u32 kFlip = 0, bool kLifted = false>
struct Nibbles {
  static constexpr int kPairs = 16;
  static constexpr int kNeighbours = 2;

  // The low four bits of a number in each of its halves, of which only these count.
  __device__ static __forceinline__ u32 unbiased(u32 bits) {
    constexpr u32 kLarge = kLargePair<T>;
    const u32 pair = and_or(bits, 0x000f000fu, kLarge);
    return kLifted ? pair : subtract_pair<T>(pair, kLarge + 0x00080008u);
  }
  __device__ static __forceinline__ u32 neighbours(const unsigned char* place) {
    return unbiased((*place ^ (kFlip & 0xffu)) * 0x1001u);
  }

  // As those of Bytes, of bytes with two columns each.
  __device__ static __forceinline__ u32 across(u32 first, u32 next, int column) {
    const u32 both = __byte_perm(first ^ kFlip, next ^ kFlip, 0x4400 + column / 2 * 0x1111);
    return unbiased(both >> column % 2 * 4);
  }
  // Both halves of one of four bytes.
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

// The same that keep the number of kLargePair, which zero points take off, and are not less 8.
template <class T, u32 kFlip = 0>
using Lifted = Nibbles<T, kFlip, true>;

}  // namespace fusec
