// Stable radix sort: keys whose order as unsigned integers is that of the values, the rank of each
// key's digit in a tile, and the sort of a tile that a block holds in registers. A block is
// one-dimensional and has whole warps. Item i of lane l of warp w is element (w * kItems + i) * 32
// + l of the tile. Each function is called by all threads of the block. Calls of sort_tile need no
// barrier in between, those of rank_digits do.
#pragma once

#include "combine.cuh"
#include "reduce.cuh"
#include "scan.cuh"
#include "shuffle.cuh"
#include "types.cuh"

namespace fusec {

// The unsigned integer with as many bits as a type; fp8 is ordered as fp16.
template <class T>
struct KeyOf {
  using type = typename KeyOf<typename Word<sizeof(T)>::type>::type;
};
template <>
struct KeyOf<u8> {
  using type = u8;
};
template <>
struct KeyOf<u16> {
  using type = u16;
};
template <>
struct KeyOf<u32> {
  using type = u32;
};
template <>
struct KeyOf<uint2> {
  using type = u64;
};
template <>
struct KeyOf<f8e4m3> {
  using type = u16;
};
template <>
struct KeyOf<f8e5m2> {
  using type = u16;
};

// Returns a key that orders floats: all NaN are equal and largest, -0 equals 0.
template <class Key>
__device__ __forceinline__ Key float_key(Key bits, bool is_nan, bool is_zero) {
  constexpr Key kSign = static_cast<Key>(Key(1) << (8 * sizeof(Key) - 1));
  if (is_nan) return static_cast<Key>(~Key(0));
  if (is_zero) return kSign;
  return static_cast<Key>(bits & kSign ? ~bits : bits | kSign);
}

// Returns the key of a value of storage type T, given in its compute type.
template <class T, class Value>
__device__ __forceinline__ typename KeyOf<T>::type order_key(Value value) {
  using Key = typename KeyOf<T>::type;
  if constexpr (kIsSame<T, double>) {
    const u64 bits = static_cast<u64>(__double_as_longlong(value));
    return float_key<u64>(bits, value != value, value == 0);
  } else if constexpr (kIsSame<T, float>) {
    return float_key<u32>(__float_as_uint(value), value != value, value == 0);
  } else if constexpr (kIsSame<T, bf16>) {
    return float_key<u16>(convert<bf16>(value).bits, value != value, value == 0);
  } else if constexpr (kIsSmallFloat<T>) {
    return float_key<u16>(convert<f16>(value).bits, value != value, value == 0);
  } else if constexpr (T(-1) < T(0)) {
    return static_cast<Key>(static_cast<Key>(value) ^ (Key(1) << (8 * sizeof(Key) - 1)));
  } else {
    return static_cast<Key>(value);
  }
}

inline constexpr int kDigitBits = 8;
inline constexpr int kDigits = 1 << kDigitBits;

template <class Key>
__device__ __forceinline__ u32 digit_of(Key key, int shift) {
  return static_cast<u32>(key >> shift) & (kDigits - 1);
}

// Returns a mask of the lanes with this lane's digit.
__device__ __forceinline__ u32 lanes_of_digit(u32 digit) {
  u32 lanes = kFullWarp;
#pragma unroll
  for (int bit = 0; bit < kDigitBits; ++bit) {
    const bool is_set = digit >> bit & 1;
    const u32 vote = __ballot_sync(kFullWarp, is_set);
    lanes &= is_set ? vote : ~vote;
  }
  return lanes;
}

// Shared memory for the digit counts of a tile.
template <int kThreads>
struct DigitCounts {
  static constexpr int kWarps = kThreads / 32;
  u32 before[kWarps][kDigits];  // of each digit in lower warps
  u32 starts[kDigits];          // of each digit's run in the tile
  u32 sums[8];
};

// Counts a key's digit if `is_there`. Called by all lanes of a warp.
__device__ __forceinline__ void count_digit(u32* counts, u32 digit, bool is_there) {
  const u32 lanes = lanes_of_digit(digit) & __ballot_sync(kFullWarp, is_there);
  const u32 lane = threadIdx.x % 32;
  if (is_there && (lanes & ((1u << lane) - 1)) == 0) atomicAdd(counts + digit, u32(__popc(lanes)));
}

// Sets `place` to the position of each item's element in the tile ordered by digit.
template <int kThreads, int kItems>
__device__ __forceinline__ void rank_digits(DigitCounts<kThreads>& counts,
                                            const u32 (&digit)[kItems], int (&place)[kItems]) {
  constexpr int kWarps = kThreads / 32;
  constexpr int kScanning = kThreads < kDigits ? kThreads : kDigits;
  constexpr int kEach = kDigits / kScanning;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  for (int d = lane; d < kDigits; d += 32) counts.before[warp][d] = 0;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const u32 lanes = lanes_of_digit(digit[i]);
    const int lower = __popc(lanes & ((1u << lane) - 1));
    u32 seen = 0;
    if (lower == 0) {
      seen = counts.before[warp][digit[i]];
      counts.before[warp][digit[i]] = seen + __popc(lanes);
    }
    place[i] = lower + static_cast<int>(shuffle_from(seen, __ffs(lanes) - 1));
    __syncwarp();
  }
  __syncthreads();
  u32 totals[kEach];
  u32 sum = 0;
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    totals[j] = 0;
    if (threadIdx.x < kScanning) {
      for (int w = 0; w < kWarps; ++w) {
        u32& count = counts.before[w][threadIdx.x * kEach + j];
        const u32 own = count;
        count = totals[j];
        totals[j] += own;
      }
    }
    sum += totals[j];
  }
  const u32 inclusive = warp_scan<Sum<u32>>(sum);
  if (threadIdx.x < kScanning && lane == 31) counts.sums[warp] = inclusive;
  __syncthreads();
  if (threadIdx.x < kScanning) {
    u32 start = inclusive - sum;
    for (int w = 0; w < warp; ++w) start += counts.sums[w];
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      counts.starts[threadIdx.x * kEach + j] = start;
      start += totals[j];
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    place[i] += static_cast<int>(counts.starts[digit[i]] + counts.before[warp][digit[i]]);
  }
}

// Shared memory for the keys of a tile and their original positions.
template <class Key, class From, int kThreads, int kItems>
struct SortedTile {
  Key keys[kThreads * kItems];
  From from[kThreads * kItems];
  DigitCounts<kThreads> counts;
};

// Returns the index in the tile of this thread's item 0; item i is 32 * i further.
template <int kItems>
__device__ __forceinline__ int first_item() {
  return static_cast<int>(threadIdx.x / 32 * (32 * kItems) + threadIdx.x % 32);
}

// Returns the bits in which the first `count` keys of a tile differ.
template <int kThreads, class Key, int kItems>
__device__ __forceinline__ Key differing_bits(const Key (&key)[kItems], int count) {
  Key set = Any<Key>::identity();
  Key clear = Any<Key>::identity();
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    if (first_item<kItems>() + 32 * i >= count) continue;
    set = static_cast<Key>(set | key[i]);
    clear = static_cast<Key>(clear | ~key[i]);
  }
  set = block_reduce<Any<Key>, kThreads>(set);
  clear = block_reduce<Any<Key>, kThreads>(clear);
  return static_cast<Key>(set & clear);
}

// Sorts a tile's keys, and `from` with them. Elements after the first `count` have the largest key
// and stay last; digits that are equal in all keys need no pass.
template <int kThreads, class Key, class From, int kItems>
__device__ __forceinline__ void sort_tile(SortedTile<Key, From, kThreads, kItems>& tile,
                                          Key (&key)[kItems], int (&from)[kItems], int count) {
  const int first = first_item<kItems>();
  const Key differing = differing_bits<kThreads>(key, count);
#pragma unroll 1
  for (int shift = 0; shift < static_cast<int>(8 * sizeof(Key)); shift += kDigitBits) {
    if (digit_of(differing, shift) == 0) continue;
    u32 digit[kItems];
    int place[kItems];
#pragma unroll
    for (int i = 0; i < kItems; ++i) digit[i] = digit_of(key[i], shift);
    rank_digits<kThreads>(tile.counts, digit, place);
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      tile.keys[place[i]] = key[i];
      tile.from[place[i]] = static_cast<From>(from[i]);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      key[i] = tile.keys[first + 32 * i];
      from[i] = static_cast<int>(tile.from[first + 32 * i]);
    }
  }
  __syncthreads();
}

}  // namespace fusec
