// Vec<T, N>: N elements moved by one instruction where the hardware can (1, 2, 4, 8, 16 bytes), or
// by several 16-byte ones. Callers guarantee that the address is a multiple of alignof(Vec<T, N>).
// load / store work on global and shared memory; load_readonly only on global memory that nothing
// writes while the kernel runs, and load_once on such of it as should leave what else is in L2
// there; load_streaming and store_streaming mark data as used once.
#pragma once

#include "storage.cuh"

namespace fusec {

// The widest access that a run of `bytes` bytes is a whole number of, at most 16.
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

// The register type of one access of kBytes bytes.
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

// A Vec seen as the words that move it.
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

// A word of read-only memory that is the first to leave L2 again, before what waits there to be
// written back; L1 keeps it as any other.
__device__ __forceinline__ u64 first_to_leave() {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ void load_word_once(u8& word, const u8* source) {
  u32 wide;
  asm("ld.global.nc.L2::cache_hint.u8 %0, [%1], %2;" : "=r"(wide) : "l"(source), "l"(first_to_leave()));
  word = static_cast<u8>(wide);
}
__device__ __forceinline__ void load_word_once(u16& word, const u16* source) {
  asm("ld.global.nc.L2::cache_hint.u16 %0, [%1], %2;" : "=h"(word) : "l"(source), "l"(first_to_leave()));
}
__device__ __forceinline__ void load_word_once(u32& word, const u32* source) {
  asm("ld.global.nc.L2::cache_hint.u32 %0, [%1], %2;" : "=r"(word) : "l"(source), "l"(first_to_leave()));
}
__device__ __forceinline__ void load_word_once(uint2& word, const uint2* source) {
  asm("ld.global.nc.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;"
      : "=r"(word.x), "=r"(word.y)
      : "l"(source), "l"(first_to_leave()));
}
__device__ __forceinline__ void load_word_once(uint4& word, const uint4* source) {
  asm("ld.global.nc.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
      : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
      : "l"(source), "l"(first_to_leave()));
}

template <int N = 1, class T>
__device__ __forceinline__ Vec<T, N> load_once(const T* source) {
  using W = typename Words<T, N>::type;
  Vec<T, N> result;
#pragma unroll
  for (int i = 0; i < Words<T, N>::kCount; ++i) {
    load_word_once(reinterpret_cast<W*>(&result)[i], reinterpret_cast<const W*>(source) + i);
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
