// Vectors of a run that begins anywhere: they lie at multiples of their own size, so that the run
// begins within the first of them and ends within the last. Of these only the run's own elements
// are read and written, one by one; all others are whole.
#pragma once

#include "vector.cuh"

namespace fusec {

// How many elements a run begins behind the place of its first vector.
template <int N, class T>
__device__ __forceinline__ int shift_of(const T* run) {
  return static_cast<int>(reinterpret_cast<u64>(run) / sizeof(T) % N);
}

// A vector of which the elements from `low` to before `end` are the run's, zeros beside them; all
// of them where kPart says so beforehand: a test would have the thread wait for each vector.
template <int N, bool kPart = true, class T>
__device__ __forceinline__ Vec<T, N> load_part(const T* source, int low, int end) {
  if (!kPart || (low <= 0 && end >= N)) return load_readonly<N>(source);
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
    // By name, which keeps it one access: beside those below, `store` would become one for a word.
    store_streaming(target, value);
    return;
  }
#pragma unroll
  for (int v = 0; v < N; ++v) {
    if (v >= low && v < end) target[v] = value[v];
  }
}

}  // namespace fusec
