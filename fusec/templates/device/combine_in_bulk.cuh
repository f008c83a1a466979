// Combines partial results of blocks in global memory by reducing bulk copies (sm_90): sums, maxima
// and minima. The memory is zero before, and again after the last block has taken the results. Sums
// of floats in ticket order are bitwise reproducible; in arrival order they may not be. See
// bulk_reduce.cuh for the rules.
#pragma once

#include "bulk_reduce.cuh"
#include "grid.cuh"
#include "proxy.cuh"
#include "reduce.cuh"
#include "types.cuh"
#include "vector.cuh"

namespace fusec {

// Maps a value to an unsigned integer of the same order, with NaN above all others.
__device__ __forceinline__ u32 ordered_bits(float value) {
  const u32 bits = __float_as_uint(value);
  if (value != value) return ~0u;
  return bits >> 31 ? ~bits : bits | (1u << 31);
}
__device__ __forceinline__ u64 ordered_bits(double value) {
  const u64 bits = __double_as_longlong(value);
  if (value != value) return ~0ull;
  return bits >> 63 ? ~bits : bits | (1ull << 63);
}
__device__ __forceinline__ u32 ordered_bits(i32 value) { return u32(value) ^ (1u << 31); }
__device__ __forceinline__ u64 ordered_bits(i64 value) { return u64(value) ^ (1ull << 63); }
__device__ __forceinline__ u32 ordered_bits(u32 value) { return value; }
__device__ __forceinline__ u64 ordered_bits(u64 value) { return value; }

// Inverse of ordered_bits.
template <class T, class Bits>
__device__ __forceinline__ T value_of_ordered(Bits bits) {
  constexpr Bits kTop = Bits(1) << (8 * sizeof(Bits) - 1);
  if constexpr (kIsSame<T, float>) {
    return __uint_as_float(bits & kTop ? bits ^ kTop : ~bits);
  } else if constexpr (kIsSame<T, double>) {
    return __longlong_as_double(bits & kTop ? bits ^ kTop : ~bits);
  } else {
    return Limits<T>::kSigned ? T(bits ^ kTop) : T(bits);
  }
}

// How partial results are stored in memory, with type Stored: the instruction computes sums (fp16
// and bf16 in 16 bits) or maxima, and zero is the identity.
template <class Op, class StoredType>
struct InMemory {
  using Combiner = Op;
  using Stored = StoredType;
  using T = typename Op::type;
  static_assert(kIsSame<Op, Sum<T>>, "the instruction has sums, maxima and minima");
  static constexpr bool kIsMaximum = false;
  __device__ __forceinline__ static Stored stored(T part) { return convert<Stored>(part); }
  __device__ __forceinline__ static T part(Stored stored) { return convert<T>(stored); }
};

template <class T, class StoredType>
struct InMemory<Max<T>, StoredType> {
  using Combiner = Max<T>;
  using Stored = StoredType;
  static constexpr bool kIsMaximum = true;
  __device__ __forceinline__ static Stored stored(T part) { return ordered_bits(part); }
  __device__ __forceinline__ static T part(Stored stored) { return value_of_ordered<T>(stored); }
};

// A minimum is the maximum of complements.
template <class T, class StoredType>
struct InMemory<Min<T>, StoredType> {
  using Combiner = Min<T>;
  using Stored = StoredType;
  static constexpr bool kIsMaximum = true;
  __device__ __forceinline__ static Stored stored(T part) {
    return part != part ? ~Stored(0) : ~ordered_bits(part);
  }
  __device__ __forceinline__ static T part(Stored stored) { return value_of_ordered<T>(~stored); }
};

// Number of results of a block, padded to 16 bytes, since bulk copies have multiples of 16 bytes.
template <class Stored>
__host__ __device__ constexpr int padded_results(int results) {
  return (results * static_cast<int>(sizeof(Stored)) + 15) / 16 * 16 /
         static_cast<int>(sizeof(Stored));
}

// Returns the address of the partial results of this block.
template <int kResults, class Stored>
__device__ __forceinline__ Stored* parts_of_block(Stored* memory) {
  return memory + blockIdx.x * padded_results<Stored>(kResults);
}

// Stores one partial result, or those of a vector.
template <class Layout, class Stored, class T>
__device__ __forceinline__ void store_partials(Stored* tile, T part) {
  *tile = Layout::stored(part);
}
template <class Layout, class Stored, class T, int N>
__device__ __forceinline__ void store_partials(Stored* tile, const Vec<T, N>& parts) {
#pragma unroll
  for (int i = 0; i < N; ++i) tile[i] = Layout::stored(parts[i]);
}

// Combines a block's kResults partial results with those in memory. Called by all threads of the
// block; those with `own` have results from `first` on. The update is complete when the call
// returns.
template <class Layout, int kResults, class Stored, class Part>
__device__ __forceinline__ void combine_in_bulk(Stored* memory, const Part& part, int first,
                                                bool own) {
  constexpr int kPadded = padded_results<Stored>(kResults);
  __shared__ __align__(16) Stored tile[kPadded];
  if (own) store_partials<Layout>(tile + first, part);
  if constexpr (kPadded > kResults) {
    if (is_first_thread()) {
      for (int i = kResults; i < kPadded; ++i) tile[i] = Stored{};
    }
  }
  fence_proxy_async_shared_cta();
  __syncthreads();
  if (is_first_thread()) {
    fence_proxy_async();
    if constexpr (Layout::kIsMaximum) {
      bulk_reduce_max(memory, tile, sizeof(tile));
    } else {
      bulk_reduce_add(memory, tile, sizeof(tile));
    }
    commit_group();
    wait_group<0>();
  }
  __syncthreads();
}

// Returns the combined results and resets the memory to zeros. `own` only determines the type.
template <class Layout, class Stored, class T>
__device__ __forceinline__ T take_combined(Stored* memory, const T& own) {
  const T part = Layout::part(*memory);
  *memory = Stored{};
  return part;
}
template <class Layout, class Stored, class T, int N>
__device__ __forceinline__ Vec<T, N> take_combined(Stored* memory, const Vec<T, N>& own) {
  Vec<T, N> parts;
#pragma unroll
  for (int i = 0; i < N; ++i) parts[i] = take_combined<Layout>(memory + i, own[i]);
  return parts;
}

// The same combined with `own`, the partial result of the last turn, which is not rounded.
template <class Layout, class Stored, class Part>
__device__ __forceinline__ Part combine_last(Stored* memory, const Part& own) {
  return combine_each<typename Layout::Combiner>(take_combined<Layout>(memory, own), own);
}

}  // namespace fusec
