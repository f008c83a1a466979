// Warp shuffles of values of any trivially copyable type, as 32-bit words. Called by all 32 lanes
// of the warp.
#pragma once

#include "storage.cuh"

namespace fusec {

inline constexpr u32 kFullWarp = 0xffffffffu;

// A value as the 32-bit words that are shuffled.
template <class T>
struct ShuffleWords {
  static constexpr int kCount = (static_cast<int>(sizeof(T)) + 3) / 4;
  u32 words[kCount];
  __device__ __forceinline__ explicit ShuffleWords(const T& value) {
    words[kCount - 1] = 0;
    memcpy(words, &value, sizeof(T));
  }
  __device__ __forceinline__ T value() const {
    T result;
    memcpy(&result, words, sizeof(T));
    return result;
  }
};

// Returns the value of the lane whose index differs from this one's in the bits of lane_mask.
template <class T>
__device__ __forceinline__ T shuffle_xor(T value, int lane_mask) {
  if constexpr (kIsSame<T, float> || kIsSame<T, i32> || kIsSame<T, u32>) {
    return __shfl_xor_sync(kFullWarp, value, lane_mask);
  } else {
    ShuffleWords<T> carried(value);
#pragma unroll
    for (int i = 0; i < carried.kCount; ++i) {
      carried.words[i] = __shfl_xor_sync(kFullWarp, carried.words[i], lane_mask);
    }
    return carried.value();
  }
}

// Returns the value of lane `lane` of this lane's group of kWidth lanes.
template <int kWidth = 32, class T>
__device__ __forceinline__ T shuffle_from(T value, int lane) {
  ShuffleWords<T> carried(value);
#pragma unroll
  for (int i = 0; i < carried.kCount; ++i) {
    carried.words[i] = __shfl_sync(kFullWarp, carried.words[i], lane, kWidth);
  }
  return carried.value();
}

// Returns the value of the lane `distance` below in the group; lanes without one keep their own.
template <int kWidth = 32, class T>
__device__ __forceinline__ T shuffle_up(T value, int distance) {
  ShuffleWords<T> carried(value);
#pragma unroll
  for (int i = 0; i < carried.kCount; ++i) {
    carried.words[i] = __shfl_up_sync(kFullWarp, carried.words[i], distance, kWidth);
  }
  return carried.value();
}

}  // namespace fusec
