// Philox 4x32-10: random bits as a function of (seed, offset, element), the same numbers as the
// reference in fusec/ops/numerics/philox.py, whose comment describes the layout. The random number
// of an element is uniform_f32(low, high, seed, offset, element), and so on. Neighbouring elements
// share a block of four words: a kernel that computes a vector of them calls random_words(seed,
// offset, first) once, and uniform_f32(low, high, words, lane) for each element, with bitwise equal
// results.
#pragma once

#include "storage.cuh"

namespace fusec {

struct PhiloxWords {
  u32 word[4];
};

// The four words of each of kBlocks consecutive blocks, computed round by round, since they share
// the key.
template <int kBlocks>
struct PhiloxBlocks {
  PhiloxWords block[kBlocks];
};

template <int kBlocks>
__device__ __forceinline__ PhiloxBlocks<kBlocks> philox_blocks(u64 seed, u64 offset, u64 first) {
  PhiloxBlocks<kBlocks> result;
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    result.block[i] = {static_cast<u32>(first + i), static_cast<u32>((first + i) >> 32),
                       static_cast<u32>(offset), static_cast<u32>(offset >> 32)};
  }
  u32 low = static_cast<u32>(seed), high = static_cast<u32>(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const auto [a, b, c, d] = result.block[i].word;
      const u64 left = static_cast<u64>(0xD2511F53u) * a;
      const u64 right = static_cast<u64>(0xCD9E8D57u) * c;
      result.block[i] = {static_cast<u32>(right >> 32) ^ b ^ low, static_cast<u32>(right),
                         static_cast<u32>(left >> 32) ^ d ^ high, static_cast<u32>(left)};
    }
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  return result;
}

// Returns the four words of a block.
__device__ __forceinline__ PhiloxWords philox(u64 seed, u64 offset, u64 block) {
  return philox_blocks<1>(seed, offset, block).block[0];
}

// Returns the upper 24 bits of a word, or 53 bits of two, plus `step`, scaled to [0, 1] by 2^-24 or
// 2^-53. Exact.
__device__ __forceinline__ float unit_f32(u32 word, u32 step = 0) {
  return static_cast<float>((word >> 8) + step) * 5.9604644775390625e-8f;
}
__device__ __forceinline__ double unit_f64(u32 low, u32 high, u64 step = 0) {
  const u64 joined = static_cast<u64>(high) << 32 | low;
  return static_cast<double>((joined >> 11) + step) * 1.1102230246251565e-16;
}

// Box-Muller: returns the normal random number of the even (`odd` false) or odd element of a pair
// from its two uniform ones, the first in (0, 1], the second in [0, 1).
__device__ __forceinline__ float turn_f32(float first, float second, bool odd) {
  const float radius = sqrtf(-2.0f * logf(first));
  return radius * (odd ? sinpif(2.0f * second) : cospif(2.0f * second));
}
__device__ __forceinline__ double turn_f64(double first, double second, bool odd) {
  const double radius = sqrt(-2.0 * log(first));
  return radius * (odd ? sinpi(2.0 * second) : cospi(2.0 * second));
}

// Selects a word by a runtime index, without an array in local memory.
__device__ __forceinline__ u32 pick_word(PhiloxWords words, u32 which) {
  const u32 left = which & 1 ? words.word[1] : words.word[0];
  const u32 right = which & 1 ? words.word[3] : words.word[2];
  return which & 2 ? right : left;
}

// The words of the elements of a vector, for f32.
template <int kCount>
struct RandomWords {
  u32 word[kCount];
};

// Returns the words of kCount elements, a power of two, starting at `first`, a multiple of kCount.
template <int kCount>
__device__ __forceinline__ RandomWords<kCount> random_words(u64 seed, u64 offset, u64 first) {
  RandomWords<kCount> result;
  if constexpr (kCount >= 4) {
    const auto random_blocks = philox_blocks<kCount / 4>(seed, offset, first / 4);
#pragma unroll
    for (int i = 0; i < kCount; ++i) result.word[i] = random_blocks.block[i / 4].word[i % 4];
  } else {
    const PhiloxWords words = philox(seed, offset, first / 4);
#pragma unroll
    for (int i = 0; i < kCount; ++i) result.word[i] = pick_word(words, first % 4 + i);
  }
  return result;
}

template <int kCount>
__device__ __forceinline__ float uniform_f32(float low, float high,
                                             const RandomWords<kCount>& words, int lane) {
  return low + unit_f32(words.word[lane]) * (high - low);
}
// For an even number of elements, since each pair shares two words.
template <int kCount>
__device__ __forceinline__ float normal_f32(float mean, float deviation,
                                            const RandomWords<kCount>& words, int lane) {
  const float unit = unit_f32(words.word[lane & ~1], 1);
  return mean + turn_f32(unit, unit_f32(words.word[lane | 1]), lane & 1) * deviation;
}

// Returns the uniform random number of an element, between low and high.
__device__ __forceinline__ float uniform_f32(float low, float high, u64 seed, u64 offset,
                                             u64 element) {
  const PhiloxWords words = philox(seed, offset, element / 4);
  return low + unit_f32(pick_word(words, element % 4)) * (high - low);
}
__device__ __forceinline__ double uniform_f64(double low, double high, u64 seed, u64 offset,
                                              u64 element) {
  const PhiloxWords words = philox(seed, offset, element / 2);
  const u32 first = element % 2 * 2;
  const double unit = unit_f64(pick_word(words, first), pick_word(words, first + 1));
  return low + unit * (high - low);
}

// Returns the normal random number of an element, with this mean and standard deviation.
__device__ __forceinline__ float normal_f32(float mean, float deviation, u64 seed, u64 offset,
                                            u64 element) {
  const PhiloxWords words = philox(seed, offset, element / 4);
  const u32 first = element & 2;
  const float unit = unit_f32(pick_word(words, first), 1);
  const float normal = turn_f32(unit, unit_f32(pick_word(words, first + 1)), element & 1);
  return mean + normal * deviation;
}
__device__ __forceinline__ double normal_f64(double mean, double deviation, u64 seed, u64 offset,
                                             u64 element) {
  const PhiloxWords words = philox(seed, offset, element / 2);
  const double unit = unit_f64(words.word[0], words.word[1], 1);
  const double normal = turn_f64(unit, unit_f64(words.word[2], words.word[3]), element & 1);
  return mean + normal * deviation;
}

}  // namespace fusec
