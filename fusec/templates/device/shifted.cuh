// Vectors of a run with any alignment: vectors are aligned to their own size, so the run starts
// within the first of them and ends within the last. Of these two only the run's own elements are
// written, one by one; all others are whole.
#pragma once

#include "async_copy.cuh"
#include "vector.cuh"

namespace fusec {

// Returns the offset of the start of a run in its first vector, in elements.
template <int N, class T>
__device__ __forceinline__ int shift_of(const T* run) {
  return static_cast<int>(static_cast<u32>(reinterpret_cast<u64>(run)) / sizeof(T) % N);
}

inline constexpr bool kStreaming = true;  // loads are those of load_streaming

template <int N, bool kStreams, class T>
__device__ __forceinline__ Vec<T, N> load_whole(const T* source) {
  if constexpr (kStreams) return load_streaming<N>(source);
  return load_readonly<N>(source);
}

// Loads a vector with the run's elements [low, end), and zeros elsewhere. Without kPart the vector
// is known to be whole: a test would make the thread wait for each vector.
template <int N, bool kPart = true, bool kStreams = false, class T>
__device__ __forceinline__ Vec<T, N> load_part(const T* source, int low, int end) {
  if (!kPart || (low <= 0 && end >= N)) return load_whole<N, kStreams>(source);
  Vec<T, N> result = {};
#pragma unroll
  for (int v = 0; v < N; ++v) {
    if (v >= low && v < end) result[v] = source[v];
  }
  return result;
}

template <class T, int N>
__device__ __forceinline__ void store_part(T* target, const Vec<T, N>& value, int low, int end) {
  if (low <= 0 && end >= N) {
    // store_streaming stays one access: with those below, `store` would become one access per word.
    store_streaming(target, value);
    return;
  }
#pragma unroll
  for (int v = 0; v < N; ++v) {
    if (v >= low && v < end) target[v] = value[v];
  }
}

// Returns whether the two vectors that hold N elements from index `at` on are within a tensor of
// `size` elements.
template <int N, class T, class I, class Size>
__device__ __forceinline__ bool is_inside(const T* tensor, I at, Size size) {
  const I first = at - shift_of<N>(tensor + at);
  return first >= 0 && first <= size - 2 * N;
}

// Returns whether the vector at index `at`, a multiple of its size, is within a tensor of `size`
// elements.
template <int N, class I, class Size>
__device__ __forceinline__ bool is_whole(I at, Size size) {
  return at >= 0 && at <= size - N;
}

// Returns N elements of two neighbouring vectors, starting at element `shift` of the first.
template <class T, int N>
__device__ __forceinline__ Vec<T, N> shifted(const Vec<T, N>& low, const Vec<T, N>& high,
                                             int shift) {
  constexpr int kWords = static_cast<int>(sizeof(T)) * N / 4;
  static_assert(kWords > 0);
  u32 words[2 * kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    words[i] = reinterpret_cast<const u32*>(&low)[i];
    words[kWords + i] = reinterpret_cast<const u32*>(&high)[i];
  }
  const int bytes = shift * static_cast<int>(sizeof(T));
#pragma unroll
  for (int step = kWords / 2; step > 0; step /= 2) {
    const bool skips = bytes & 4 * step;
#pragma unroll
    for (int i = 0; i < kWords + step; ++i) words[i] = skips ? words[i + step] : words[i];
  }
  Vec<T, N> result;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const u64 pair = static_cast<u64>(words[i + 1]) << 32 | words[i];
    reinterpret_cast<u32*>(&result)[i] = static_cast<u32>(pair >> bytes % 4 * 8);
  }
  return result;
}

// Loads N elements of a tensor from index `at` on, at any alignment, through the two vectors that
// hold them. kPart: these may exceed the tensor; then each element is tested.
template <int N, bool kPart = true, bool kStreams = false, class T, class I, class Size>
__device__ __forceinline__ Vec<T, N> load_across(const T* tensor, I at, Size size) {
  if (!kPart || is_inside<N>(tensor, at, size)) {
    const int shift = shift_of<N>(tensor + at);
    const T* first = tensor + at - shift;
    const Vec<T, N> low = load_whole<N, kStreams>(first);
    return shifted(low, load_whole<N, kStreams>(first + (shift ? N : 0)), shift);
  }
  Vec<T, N> result = {};
#pragma unroll
  for (int v = 0; v < N; ++v) {
    if (at + v >= 0 && at + v < size) result[v] = tensor[at + v];
  }
  return result;
}

// Starts copying the vector at index `at` of a tensor of `size` elements to shared memory. Returns
// false, without copying, if the vector exceeds the tensor.
template <int N, class T, class I, class Size>
__device__ __forceinline__ bool copy_vector(T* shared, const T* tensor, I at, Size size) {
  constexpr int kWide = 16 / static_cast<int>(sizeof(T));
  if (at < 0 || at > size - N) return false;
  if constexpr (N % kWide == 0) {
#pragma unroll
    for (int v = 0; v < N; v += kWide) copy_async_16(shared + v, tensor + at + v);
  } else {
    store(shared, load_readonly<N>(tensor + at));
  }
  return true;
}

// Copies the in-bounds elements of a vector that exceeds the tensor.
template <int N, class T, class I, class Size>
__device__ __forceinline__ void copy_elements(T* shared, const T* tensor, I at, Size size) {
  if (at >= 0 && at <= size - N) return;
#pragma unroll
  for (int v = 0; v < N; ++v) {
    if (at + v >= 0 && at + v < size) shared[v] = tensor[at + v];
  }
}

}  // namespace fusec
