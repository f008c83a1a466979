// The stream over B of a product whose few rows of A are computed (sm_80), by each lane those that
// it multiplies: what they are made of lies in L1 and L2, and B is on its way meanwhile. `Config`
// is the struct at the top of a kernel.
#pragma once

#include "computed_rows.cuh"
#include "matmul_vector.cuh"

namespace fusec {

// The elements of a lane's columns of B from `depth` on, zeros from `last` on if it is kGuarded.
template <class Config, bool kGuarded, class T, class Index>
__device__ __forceinline__ void load_columns_part(VectorPart<Config>& part,
                                                  const T* const (&b_columns)[Config::kTileN / 8],
                                                  Index depth, Index last) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Index at = depth + half * (kPart / 2);
    const bool is_inside = !kGuarded || at + threadIdx.x % 4 * 8 < last;
#pragma unroll
    for (int i = 0; i < Config::kTileN / 8; ++i) {
      const u32* const words = reinterpret_cast<const u32*>(b_columns[i] + at);
      part.b[i][half] = is_inside ? load_once(words) : splat<u32, 4>(0);
    }
  }
}

// The same of a lane's rows of A, which it computes; of those behind the end the last one.
template <class Config, bool kGuarded, class A, class Index>
__device__ __forceinline__ void compute_rows_part(VectorPart<Config>& part, const A& a, Index depth,
                                                  Index last) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Index at = depth + half * (kPart / 2) + lane % 4 * 8;
    const bool is_inside = !kGuarded || at < last;
#pragma unroll
    for (int j = 0; j < Config::kTileM / 8; ++j) {
      const Index row = min(a.position + 8 * j + lane / 4, a.extent - 1);
      part.a[j][half] = is_inside ? words_of(a.make(row, at)) : splat<u32, 4>(0);
    }
  }
}

// sums += the products of the elements of K from `first` to `last`: as multiply_vectors. Of kStages
// parts all of B is on its way before the first element of A is computed.
template <class Config, class A, class B, class Index>
__device__ __forceinline__ void multiply_computed_vectors(
    float (&sums)[Config::kTileN / 16][Config::kTileM / 8][4], const A& a, const B& b, Index first,
    Index last) {
  using T = typename Config::T;
  constexpr int kOwn = Config::kStages * kPart;
  const int lane = threadIdx.x % 32;
  const T* b_columns[Config::kTileN / 8];
#pragma unroll
  for (int i = 0; i < Config::kTileN / 8; ++i) b_columns[i] = lane_row(b, 8 * i + lane / 4);
  Index start = first + static_cast<Index>(threadIdx.x / 32 * kOwn);
  for (; start + kOwn <= last; start += Config::kWarps * kOwn) {
    VectorPart<Config> parts[Config::kStages];
#pragma unroll
    for (int s = 0; s < Config::kStages; ++s) {
      load_columns_part<Config, false>(parts[s], b_columns, start + s * kPart, last);
    }
#pragma unroll
    for (int s = 0; s < Config::kStages; ++s) {
      compute_rows_part<Config, false>(parts[s], a, start + s * kPart, last);
    }
#pragma unroll
    for (int s = 0; s < Config::kStages; ++s) multiply_part<Config>(sums, parts[s]);
  }
  for (; start < last; start += kPart) {
    VectorPart<Config> part;
    load_columns_part<Config, true>(part, b_columns, start, last);
    compute_rows_part<Config, true>(part, a, start, last);
    multiply_part<Config>(sums, part);
  }
}

}  // namespace fusec
