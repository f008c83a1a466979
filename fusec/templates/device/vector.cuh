// Vec<T, N>: N elements that are copied by one instruction if there is one (1, 2, 4, 8, 16 bytes),
// else by several. Addresses must be aligned to alignof(Vec<T, N>). load / store access global and
// shared memory; load_readonly only global memory that nothing writes while the kernel runs;
// load_streaming and store_streaming mark data as used once.
#pragma once

#include "storage.cuh"

namespace fusec {

// Returns the widest access, at most 16 bytes, that divides `bytes`.
__host__ __device__ constexpr int access_bytes(int bytes) {
  const int power = bytes & -bytes;
  return power < 16 ? power : 16;
}

template <class T, int N>
struct alignas(access_bytes(sizeof(T) * N)) Vec {
  T data[N];
  __device__ __forceinline__ T& operator[](int i) { return data[i]; }
  __device__ __forceinline__ const T& operator[](int i) const { return data[i]; }
};

template <class T, int N>
__device__ __forceinline__ Vec<T, N> splat(T value) {
  Vec<T, N> result;
#pragma unroll
  for (int i = 0; i < N; ++i) result[i] = value;
  return result;
}

// The register type of an access of kBytes bytes.
template <int kBytes>
struct Word;
template <>
struct Word<1> {
  using type = u8;
};
template <>
struct Word<2> {
  using type = u16;
};
template <>
struct Word<4> {
  using type = u32;
};
template <>
struct Word<8> {
  using type = uint2;
};
template <>
struct Word<16> {
  using type = uint4;
};

// The words of a Vec, one per access.
template <class T, int N>
struct Words {
  static constexpr int kBytes = access_bytes(sizeof(T) * N);
  static constexpr int kCount = static_cast<int>(sizeof(T)) * N / kBytes;
  using type = typename Word<kBytes>::type;
};

template <int N = 1, class T>
__device__ __forceinline__ Vec<T, N> load(const T* source) {
  using W = typename Words<T, N>::type;
  Vec<T, N> result;
#pragma unroll
  for (int i = 0; i < Words<T, N>::kCount; ++i) {
    reinterpret_cast<W*>(&result)[i] = reinterpret_cast<const W*>(source)[i];
  }
  return result;
}

template <int N = 1, class T>
__device__ __forceinline__ Vec<T, N> load_readonly(const T* source) {
  using W = typename Words<T, N>::type;
  Vec<T, N> result;
#pragma unroll
  for (int i = 0; i < Words<T, N>::kCount; ++i) {
    reinterpret_cast<W*>(&result)[i] = __ldg(reinterpret_cast<const W*>(source) + i);
  }
  return result;
}

template <int N = 1, class T>
__device__ __forceinline__ Vec<T, N> load_streaming(const T* source) {
  using W = typename Words<T, N>::type;
  Vec<T, N> result;
#pragma unroll
  for (int i = 0; i < Words<T, N>::kCount; ++i) {
    reinterpret_cast<W*>(&result)[i] = __ldcs(reinterpret_cast<const W*>(source) + i);
  }
  return result;
}

template <class T, int N>
__device__ __forceinline__ void store(T* target, const Vec<T, N>& value) {
  using W = typename Words<T, N>::type;
#pragma unroll
  for (int i = 0; i < Words<T, N>::kCount; ++i) {
    reinterpret_cast<W*>(target)[i] = reinterpret_cast<const W*>(&value)[i];
  }
}

template <class T, int N>
__device__ __forceinline__ void store_streaming(T* target, const Vec<T, N>& value) {
  using W = typename Words<T, N>::type;
#pragma unroll
  for (int i = 0; i < Words<T, N>::kCount; ++i) {
    __stcs(reinterpret_cast<W*>(target) + i, reinterpret_cast<const W*>(&value)[i]);
  }
}

}  // namespace fusec
